package member

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Member is a member's row, and whether its process runs. Its slices must not be changed. The row of a member that has
// not started has an id and peer URLs only.
type Member struct {
	ID       uint64   `json:"id"`
	PeerURLs []string `json:"peer_urls,omitempty"`
	// StartURLs are the peer URLs that the process was started with. PeerURLs
	// differ if an operator changed them.
	StartURLs  []string `json:"start_peer_urls,omitempty"`
	ClientURLs []string `json:"client_urls,omitempty"`
	Version    string   `json:"version,omitempty"` // of the product
	// Incarnation distinguishes the processes of the member; 0 if none ever kept the row up to date.
	Incarnation uint64 `json:"incarnation,omitempty"`
	// Heartbeat counts the heartbeats of the process; above 0, the process listens.
	Heartbeat uint64 `json:"heartbeat,omitempty"`
	// Stopped: its process said that it stops.
	Stopped bool `json:"stopped,omitempty"`
	// RoundTrip is the longest recent one but one of the process to the database, in microseconds.
	RoundTrip int64 `json:"round_trip_us,omitempty"`
	// Challenge is not 0 while another process waits for a proof that this one
	// runs. The process answers with its next heartbeat, which clears it.
	Challenge uint64 `json:"challenge,omitempty"`
	Protocol  int    `json:"protocol,omitempty"`
	// Fingerprint is the SHA-256 of the certificate that the process shows to other
	// members, in hexadecimal; empty if it has published none.
	Fingerprint string `json:"fingerprint,omitempty"`

	Name string `json:"-"` // the row's key; empty: added, and not started yet
	// Alive: its heartbeats arrive, as far as this node could see.
	Alive bool `json:"-"`
}

// String returns the member's name and id.
func (m Member) String() string { return fmt.Sprintf("%q (%x)", m.Name, m.ID) }

// Started reports whether a process ever ran as this member.
func (m Member) Started() bool { return m.Name != "" }

// running reports whether a process kept the row up to date and did not say that
// it stopped.
func (m Member) running() bool { return m.Incarnation != 0 && !m.Stopped }

// roundTrip is RoundTrip within the bounds of what a challenge waits for.
func (m Member) roundTrip() time.Duration {
	return time.Duration(min(max(m.RoundTrip, 0), timing.LongestPause.Microseconds())) * time.Microsecond
}

// shares reports whether the member has one of these peer URLs, whatever their schemes.
func (m Member) shares(peerURLs []string) bool {
	return slices.ContainsFunc(m.PeerURLs, func(own string) bool {
		return slices.ContainsFunc(peerURLs, func(u string) bool { return sameAddress(u, own) })
	})
}

// withID returns the member with an id, or that is 0.
func withID(members []Member, id uint64) (Member, bool) {
	if i := slices.IndexFunc(members, func(m Member) bool { return m.ID == id }); i >= 0 {
		return members[i], true
	}
	return Member{}, false
}

// Rows that are not named after a member have keys that no name has, because
// it is not UTF-8.
const (
	unstarted = "\xff+"       // and the id, of a member that has no name yet
	changes   = "\xffchanges" // counts changes that concern more than one row
)

// entry is a member's row as it was read.
type entry struct {
	Member
	raw []byte // the whole value, for compare and swap
}

func (m Member) key() []byte {
	if m.Name == "" {
		return coder.EncodeMemberKey(unstarted + strconv.FormatUint(m.ID, 16))
	}
	return coder.EncodeMemberKey(m.Name)
}

// encode returns the row's value. Nothing in a row can fail to be written as JSON.
func (m Member) encode() []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

func decodeEntry(key, value []byte) (entry, error) {
	prefix, _ := coder.MemberBounds()
	name := string(bytes.TrimPrefix(key, prefix))
	e := entry{raw: value}
	if err := json.Unmarshal(value, &e.Member); err != nil {
		return e, fmt.Errorf("member: the row of member %q is not readable: %w", name, err)
	}
	if e.ID == 0 {
		return e, fmt.Errorf("member: the row of member %q has no id", name)
	}
	if len(name) < len(unstarted) || name[:len(unstarted)] != unstarted {
		e.Name = name
	}
	return e, nil
}

// table is the member rows at one moment, and the row that counts changes of them, or an earlier value of it.
type table struct {
	rows    []entry
	changes []byte // nil: there were none
}

// readTable reads all rows. That which counts changes has the last key, and is read first: then a swap of it proves
// that nothing was changed since.
func readTable(ctx context.Context, store sqlstore.Store) (t table, err error) {
	lo, hi := coder.MemberBounds()
	skip := coder.EncodeMemberKey(changes)
	for row, err := range store.Iter(ctx, sqlstore.Range{Start: lo, End: hi, Reverse: true}) {
		if err != nil {
			return table{}, err
		}
		if bytes.Equal(row.Key, skip) {
			t.changes = row.Value
			continue
		}
		e, err := decodeEntry(row.Key, row.Value)
		if err != nil {
			return table{}, err
		}
		t.rows = append(t.rows, e)
	}
	slices.Reverse(t.rows) // by name
	return t, nil
}

func (t table) named(name string) (entry, bool) {
	return t.find(func(e entry) bool { return e.Name == name })
}

func (t table) withID(id uint64) (entry, bool) {
	return t.find(func(e entry) bool { return e.ID == id })
}

// sharing returns a member other than id that has one of these peer URLs, whatever
// their schemes.
func (t table) sharing(peerURLs []string, id uint64) (entry, bool) {
	return t.find(func(e entry) bool { return e.ID != id && e.shares(peerURLs) })
}

func (t table) find(f func(entry) bool) (entry, bool) {
	if i := slices.IndexFunc(t.rows, f); i >= 0 {
		return t.rows[i], true
	}
	return entry{}, false
}

// count adds to batch that one more change is counted, so that it conflicts with other changes since the table was
// read.
func (t table) count(batch sqlstore.BatchWrite) error {
	key := coder.EncodeMemberKey(changes)
	if t.changes == nil {
		batch.PutIfNotExist(key, []byte("1"))
		return nil
	}
	n, err := strconv.ParseUint(string(t.changes), 10, 64)
	if err != nil {
		return fmt.Errorf("member: the row that counts changes is not readable: %w", err)
	}
	batch.CAS(key, strconv.AppendUint(nil, n+1, 10), t.changes)
	return nil
}
