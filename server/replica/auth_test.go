package replica

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// setUser gives a user a value; an empty one removes it.
func setUser(name, value string) func(*auth.Rows) (*auth.Change, error) {
	return func(rows *auth.Rows) (*auth.Change, error) {
		users := map[string][]byte{name: []byte(value)}
		if value == "" {
			users[name] = nil
		}
		return &auth.Change{Enabled: rows.Enabled, Revision: rows.Revision + 1, Users: users}, nil
	}
}

func mustChange(t testing.TB, b *Replica, change func(*auth.Rows) (*auth.Change, error)) {
	t.Helper()
	if _, err := b.Auth.Change(t.Context(), auth.System, change); err != nil {
		t.Fatal(err)
	}
}

func enable(on bool) func(*auth.Rows) (*auth.Change, error) {
	return func(rows *auth.Rows) (*auth.Change, error) {
		return &auth.Change{Enabled: on, Revision: rows.Revision}, nil
	}
}

func describeAuth(r *auth.Rows) string {
	return fmt.Sprintf("%+v %s %s", r.AuthSettings, r.Users, r.Roles)
}

func TestAuthChangesCommitWithoutRevision(t *testing.T) {
	store := newStore(t)
	b := open(t, store, nil)
	mustTxn(t, b, put("k", "v"))
	rev, sequence := b.Revision(), b.Status().Sequence
	mustChange(t, b, setUser("a", "1"))
	mustChange(t, b, setUser("b%$\x00", "2"))
	mustChange(t, b, func(*auth.Rows) (*auth.Change, error) {
		return &auth.Change{Revision: 7, Roles: map[string][]byte{"r": {}, "": []byte("nameless")}}, nil
	})
	mustChange(t, b, setUser("a", ""))
	mustChange(t, b, enable(true))
	mustChange(t, b, enable(false))
	mustChange(t, b, enable(true))
	if b.Revision() != rev || b.Status().Sequence != sequence+7 {
		t.Fatalf("revision %d, sequence %d; they were %d and %d", b.Revision(), b.Status().Sequence, rev, sequence)
	}
	want := "{Version:7 Enabled:true Revision:8 Epoch:1} map[b%$\x00:2] map[:nameless r:]"
	if got := describeAuth(b.Auth.Rows()); got != want {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
	closeReplica(t, b)
	if got := describeAuth(open(t, store, nil).Auth.Rows()); got != want {
		t.Fatalf("in the table %q\nwant         %q", got, want)
	}
}

func TestFollowerLoadsReportedAuthVersion(t *testing.T) {
	p, lead, f := newLedPair(t, newStore(t))
	defer p.mustResign(0)
	mustChange(t, lead, setUser("a", "1"))
	if f.Auth.Rows().Version != 0 {
		t.Fatal("nobody has told it")
	}
	seen := ""
	permit := auth.NewPermit(func(_ context.Context, at auth.View) error {
		seen = describeAuth(at.AuthRows())
		return nil
	})
	if _, err := f.Reader.Range(t.Context(), permit, &mvcc.RangeRequest{KeyRange: all()}, true); err != nil {
		t.Fatal(err)
	}
	if want := describeAuth(lead.Auth.Rows()); seen != want {
		t.Fatalf("a linearizable read was judged by %s, want %s", seen, want)
	}
	mustChange(t, lead, setUser("a", ""))
	if err := f.Auth.LoadVersion(t.Context(), lead.Auth.Rows().Version); err != nil || len(f.Auth.Rows().Users) != 0 {
		t.Fatalf("%s, %v", describeAuth(f.Auth.Rows()), err)
	}
	if err := f.Auth.LoadVersion(t.Context(), 99); err == nil {
		t.Fatal("a version that is not in the table counts as known")
	}
	mustChange(t, lead, setUser("b", "1"))
	if _, err := f.RefreshState(t.Context()); err != nil || string(f.Auth.Rows().Users["b"]) != "1" {
		t.Fatalf("%s, %v", describeAuth(f.Auth.Rows()), err)
	}
	mustChange(t, lead, setUser("c", "1"))
	if rows, err := f.Auth.Refresh(t.Context()); err != nil || rows.Version != lead.Auth.Rows().Version {
		t.Fatalf("%v, %v", rows, err)
	}
}

// TestSuccessorKnowsTheLastAuthChange of its predecessor. It has no revision, so that catching up does not find it.
func TestSuccessorKnowsTheLastAuthChange(t *testing.T) {
	p, lead, follower := newLedPair(t, newStore(t))
	mustChange(t, lead, setUser("a", "1"))
	p.mustResign(0)
	p.lead(1)
	defer p.mustResign(1)
	if got, want := describeAuth(follower.Auth.Rows()), describeAuth(lead.Auth.Rows()); got != want {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
}

// TestAReplicaOpensWithTheUsersOfItsRevision: what it shows first must not be shown under older permissions.
func TestAReplicaOpensWithTheUsersOfItsRevision(t *testing.T) {
	store := newStore(t)
	lead := open(t, store, func(*Config) {})
	changing := &beforeFence{Store: store, do: sync.OnceFunc(func() {
		mustChange(t, lead, setUser("a", "1"))
		if _, err := lead.Txn(t.Context(), auth.System, put("k", "v"), true); err != nil {
			t.Error(err)
		}
	})}
	b := openFollower(t, changing, testConfig(t))
	if b.Revision() != lead.Revision() || b.Auth.Rows().Version != lead.Auth.Rows().Version {
		t.Errorf("it shows revision %d and users of version %d, the leader %d and %d", b.Revision(), b.Auth.Rows().Version,
			lead.Revision(), lead.Auth.Rows().Version)
	}
}

// beforeFence is a store that calls do before the fence row is read.
type beforeFence struct {
	sqlstore.Store
	do func()
}

func (s *beforeFence) Get(ctx context.Context, key []byte) ([]byte, error) {
	if bytes.Equal(key, coder.FenceKey()) {
		s.do()
	}
	return s.Store.Get(ctx, key)
}

// TestTokensAreRemovedAfterTheirTimeToLive of package auth has the rest.
func TestLeaderRemovesTokens(t *testing.T) {
	b := open(t, newStore(t), func(c *Config) { c.TokenTTL = 50 * time.Millisecond })
	token, _, err := b.Auth.IssueToken(t.Context(), auth.System, "abc",
		func(*auth.Rows) (coder.Token, error) { return coder.Token{User: "u"}, nil })
	if err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the token is gone", func() bool {
		_, found, err := b.Auth.LookupToken(t.Context(), coder.HashToken(token))
		if err != nil {
			t.Fatal(err)
		}
		return !found
	})
}
