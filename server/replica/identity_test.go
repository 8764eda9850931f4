package replica

import (
	"testing"

	"github.com/sqlbrain/sqlbrain/server/cluster/member"
)

// The replica and package member look at the same row, whichever comes first.
func TestIdentityIsSharedWithMembers(t *testing.T) {
	store := newStore(t)
	join := func(name string) uint64 {
		r, err := member.Join(t.Context(), member.Config{Store: store, Name: name,
			PeerURLs: []string{"http://" + name + ":2380"}})
		if err != nil {
			t.Fatal(err)
		}
		return r.Self().ID
	}
	load := func(name string) identity {
		id, err := loadIdentity(t.Context(), store, name)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	alone := load("default")
	if got := join("default"); got != alone.member {
		t.Errorf("a node that ran alone was %x and joins as %x", alone.member, got)
	}
	joined := join("n2")
	if got := load("n2"); got.member != joined || got.cluster != alone.cluster || got.member == alone.member {
		t.Errorf("member %x finds itself as %+v beside %+v", joined, got, alone)
	}
}
