package member

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Rows that are not named after a member have keys that no name has, because
// it is not UTF-8.
const (
	unstarted = "\xff+"       // and the id, of a member that has no name yet
	changes   = "\xffchanges" // counts changes that concern more than one row
)

// row is the content of a member's row. That of a member that has not started has an id and peer URLs.
type row struct {
	ID       uint64   `json:"id"`
	PeerURLs []string `json:"peer_urls,omitempty"`
	// StartURLs are the peer URLs that the process was started with. PeerURLs
	// differ if an operator changed them.
	StartURLs   []string `json:"start_peer_urls,omitempty"`
	ClientURLs  []string `json:"client_urls,omitempty"`
	Version     string   `json:"version,omitempty"`
	Incarnation uint64   `json:"incarnation,omitempty"` // 0: no process ever kept this row up to date
	Heartbeat   uint64   `json:"heartbeat,omitempty"`
	Stopped     bool     `json:"stopped,omitempty"`
	// RoundTrip is that of the process to the database, in microseconds.
	RoundTrip int64 `json:"round_trip_us,omitempty"`
	// Challenge is not 0 while another process waits for a proof that this one
	// runs. The process answers with its next heartbeat, which clears it.
	Challenge uint64 `json:"challenge,omitempty"`
	Protocol  int    `json:"protocol,omitempty"`
	// Fingerprint is the SHA-256 of the certificate that the process shows to other
	// members, in hexadecimal.
	Fingerprint string `json:"fingerprint,omitempty"`
}

// roundTrip is RoundTrip within the bounds of what a challenge waits for.
func (r row) roundTrip() time.Duration {
	return time.Duration(min(max(r.RoundTrip, 0), timing.LongestPause.Microseconds())) * time.Microsecond
}

// running reports whether a process kept the row up to date and did not say that
// it stopped.
func (r row) running() bool { return r.Incarnation != 0 && !r.Stopped }

// entry is a member's row as it was read.
type entry struct {
	row
	name string // empty: not started
	raw  []byte // the whole value, for compare and swap
}

func (e entry) key() []byte {
	if e.name == "" {
		return coder.EncodeMemberKey(unstarted + strconv.FormatUint(e.ID, 16))
	}
	return coder.EncodeMemberKey(e.name)
}

// encode returns the row's value. Nothing in a row can fail to be written as JSON.
func (r row) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return b
}

func decodeEntry(key, value []byte) (entry, error) {
	prefix, _ := coder.MemberBounds()
	name := string(bytes.TrimPrefix(key, prefix))
	e := entry{raw: value}
	if err := json.Unmarshal(value, &e.row); err != nil {
		return e, fmt.Errorf("member: the row of member %q is not readable: %w", name, err)
	}
	if e.ID == 0 {
		return e, fmt.Errorf("member: the row of member %q has no id", name)
	}
	if len(name) < len(unstarted) || name[:len(unstarted)] != unstarted {
		e.name = name
	}
	return e, nil
}

// entryOf decodes a row that may be missing: then it is nil.
func entryOf(key, value []byte) (*entry, error) {
	if value == nil {
		return nil, nil
	}
	e, err := decodeEntry(key, value)
	return &e, err
}

// table is the member rows at one moment.
type table []entry

// readTable reads all rows. They fit a page of the store by far, and so are of one
// moment; what concerns several of them is checked by the change row nevertheless.
func readTable(ctx context.Context, store sqlstore.Store) (t table, err error) {
	lo, hi := coder.MemberBounds()
	skip := coder.EncodeMemberKey(changes)
	for row, err := range store.Iter(ctx, sqlstore.Range{Start: lo, End: hi}) {
		if err != nil {
			return nil, err
		}
		if bytes.Equal(row.Key, skip) {
			continue
		}
		e, err := decodeEntry(row.Key, row.Value)
		if err != nil {
			return nil, err
		}
		t = append(t, e)
	}
	return t, nil
}

// waiting returns the number of members that have not started.
func (t table) waiting() (n int) {
	for _, e := range t {
		if e.name == "" {
			n++
		}
	}
	return n
}

func (t table) named(name string) (entry, bool) {
	return t.find(func(e entry) bool { return e.name == name })
}

func (t table) withID(id uint64) (entry, bool) {
	return t.find(func(e entry) bool { return e.ID == id })
}

// added returns a member that has not started and has exactly these peer URLs, whatever
// their schemes.
func (t table) added(peerURLs []string) (entry, bool) {
	return t.find(func(e entry) bool {
		return e.name == "" && slices.EqualFunc(e.PeerURLs, peerURLs,
			func(a, b string) bool { return address(a) == address(b) })
	})
}

// sharing returns a member other than id that has one of these peer URLs, whatever
// their schemes.
func (t table) sharing(peerURLs []string, id uint64) (entry, bool) {
	return t.find(func(e entry) bool { return e.ID != id && e.shares(peerURLs) })
}

func (r row) shares(peerURLs []string) bool {
	return slices.ContainsFunc(r.PeerURLs, func(own string) bool {
		return slices.ContainsFunc(peerURLs, func(u string) bool { return address(u) == address(own) })
	})
}

func (t table) find(f func(entry) bool) (entry, bool) {
	if i := slices.IndexFunc(t, f); i >= 0 {
		return t[i], true
	}
	return entry{}, false
}

// changeRow is the row that counts changes, as it was read.
type changeRow struct{ raw []byte }

// readChanges must come before readTable: then a swap of the row proves that
// nothing was changed since either.
func readChanges(ctx context.Context, store sqlstore.Store) (changeRow, error) {
	raw, err := store.Get(ctx, coder.EncodeMemberKey(changes))
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return changeRow{}, nil
	}
	return changeRow{raw}, err
}

// swap adds to batch that the row counts one more change.
func (c changeRow) swap(batch sqlstore.BatchWrite) error {
	key := coder.EncodeMemberKey(changes)
	if c.raw == nil {
		batch.PutIfNotExist(key, []byte("1"))
		return nil
	}
	n, err := strconv.ParseUint(string(c.raw), 10, 64)
	if err != nil {
		return fmt.Errorf("member: the row that counts changes is not readable: %w", err)
	}
	batch.CAS(key, strconv.AppendUint(nil, n+1, 10), c.raw)
	return nil
}
