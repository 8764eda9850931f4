package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

// marker returns the data loss marker; ok is false if there is none.
func marker(t *testing.T, store sqlstore.Store) (l coder.DataLoss, ok bool) {
	t.Helper()
	raw, err := store.Get(t.Context(), coder.DataLossKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return l, false
	}
	if err == nil {
		l, err = coder.DecodeDataLoss(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l, true
}

func awaitMarker(t *testing.T, store sqlstore.Store) (l coder.DataLoss) {
	t.Helper()
	eventually.True(t, "the row that records lost data", func() (there bool) {
		l, there = marker(t, store)
		return there
	})
	return l
}

func putRow(t *testing.T, store sqlstore.Store, key, value []byte) {
	t.Helper()
	batch := store.BeginBatchWrite()
	batch.Put(key, value)
	if err := batch.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func fenceRow(t *testing.T, store sqlstore.Store) (raw []byte, c coder.FenceToken) {
	t.Helper()
	raw, err := store.Get(t.Context(), coder.FenceKey())
	if err == nil {
		c, err = coder.DecodeFenceToken(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	return raw, c
}

// rows returns a copy of all that a store holds, and puts it back.
type rows []sqlstore.Row

func backup(t *testing.T, store sqlstore.Store) (all rows) {
	t.Helper()
	for row, err := range store.Iter(t.Context(), sqlstore.Range{Start: []byte{0}, End: slices.Repeat([]byte{0xff}, 32)}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	return all
}

// restore makes store hold r and nothing else.
func (r rows) restore(t *testing.T, store sqlstore.Store) {
	t.Helper()
	batch := store.BeginBatchWrite()
	keep := make(map[string]bool)
	for _, row := range r {
		keep[string(row.Key)] = true
		batch.Put(row.Key, row.Value)
	}
	for _, row := range backup(t, store) {
		if !keep[string(row.Key)] {
			batch.Del(row.Key)
		}
	}
	if err := batch.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// recoverTable does what sqlbrain recover does.
func recoverTable(t *testing.T, store sqlstore.Store, bump int64, markCompacted bool) (problems []string,
	r repair.Recovered) {
	t.Helper()
	f, err := repair.Examine(t.Context(), store)
	require.NoError(t, err)
	r, err = f.Plan(bump, markCompacted)
	require.NoError(t, err)
	require.NoError(t, f.Recover(t.Context(), store, r))
	return f.Problems, r
}

// A leader finds that a backup was restored under it. A server that is started then
// knows what the leader knew, until the database is recovered.
func TestDataLossIsRememberedAfterRestart(t *testing.T) {
	store := newStore(t)
	b := open(t, store, nil)
	mustTxn(t, b, put("k", "kept"))
	old := backup(t, store)
	_, kept := fenceRow(t, store)
	for range 5 {
		mustTxn(t, b, put("k", "lost"))
	}
	_, acknowledged := fenceRow(t, store)
	old.restore(t, store)
	if _, err := b.Txn(t.Context(), auth.System, put("k", "next"), true); !errors.Is(err, mvcc.ErrNotServing) {
		t.Fatalf("%v, want ErrNotServing", err)
	}
	l := awaitMarker(t, store)
	if l.Revision != acknowledged.Revision || l.Term != acknowledged.Term || l.Sequence <= acknowledged.Sequence ||
		l.Member != b.MemberID() {
		t.Errorf("%+v, acknowledged was %+v", l, acknowledged)
	}
	closeReplica(t, b)

	refuses := func(how string, err error) {
		t.Helper()
		if !errors.Is(err, mvcc.ErrNotServing) ||
			!strings.Contains(err.Error(), fmt.Sprintf("revision %d was acknowledged", acknowledged.Revision)) {
			t.Errorf("%s: %v", how, err)
		}
	}
	_, err := OpenLeader(t.Context(), store, exclusive(t))
	refuses("alone", err)
	member := openFollower(t, store, testConfig(t))
	refuses("in a cluster, at once", member.Stopped())
	refuses("as a leader", member.Lead(t.Context(), nil))
	closeReplica(t, member)
	kept.Attempt++ // the proof of the loss
	if _, now := fenceRow(t, store); now != kept {
		t.Errorf("the fence row became %+v, want %+v", now, kept)
	}

	// However little it is raised: it is raised from what was acknowledged.
	problems, r := recoverTable(t, store, 1, true)
	if len(problems) != 1 || !strings.Contains(problems[0], fmt.Sprintf("has seen revision %d", acknowledged.Revision)) {
		t.Errorf("problems: %q", problems)
	}
	if r.Token.Revision != acknowledged.Revision+1 || r.Token.Term <= acknowledged.Term ||
		r.Token.Sequence <= acknowledged.Sequence {
		t.Errorf("recovered to %+v", r.Token)
	}
	if l, ok := marker(t, store); ok {
		t.Errorf("there still is %+v", l)
	}
	again := open(t, store, nil)
	if res := mustTxn(t, again, put("k", "new")); res.Revision != acknowledged.Revision+2 {
		t.Errorf("revision %d", res.Revision)
	}
}

// A follower that never saw what was lost, and was opened before another member found out, looks at the row. It does
// not lead, not even for the moment until it looks again.
func TestRecordedDataLossStopsAFollower(t *testing.T) {
	for name, leads := range map[string]bool{"it follows": false, "it is to lead": true} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t)
			closeReplica(t, open(t, store, nil)) // makes the rows
			b := openFollower(t, store, testConfig(t))
			before, now := fenceRow(t, store)
			row := coder.DataLoss{Sequence: now.Sequence, Term: now.Term, Revision: now.Revision, Member: 7}
			putRow(t, store, coder.DataLossKey(), coder.EncodeDataLoss(row))
			if _, err := b.RefreshState(t.Context()); err != nil {
				t.Fatalf("the database is not behind the row: %v", err)
			}
			row.Revision += 3
			row.Sequence += 100
			putRow(t, store, coder.DataLossKey(), coder.EncodeDataLoss(row))
			var err error
			if leads {
				err = b.Lead(t.Context(), func(int64) { t.Error("it leads") })
			} else if _, _ = b.RefreshState(t.Context()); true {
				err = b.Stopped()
			}
			if !errors.Is(err, mvcc.ErrNotServing) || !strings.Contains(err.Error(), "member 7 found that") {
				t.Error(err)
			}
			if after, _ := fenceRow(t, store); string(after) != string(before) {
				t.Error("the fence row was changed")
			}
			if l, _ := marker(t, store); l != row {
				t.Errorf("the row became %+v", l)
			}
		})
	}
}

// missingRow is a store on which a commit takes effect and then reports that a row to
// be replaced was missing, as a one-statement commit does.
type missingRow struct {
	sqlstore.Store
	armed  atomic.Bool
	before func() // called before the report
}

func (m *missingRow) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(m.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		if err := b.BatchWrite.Commit(ctx); err != nil || !m.armed.Swap(false) {
			return err
		}
		if m.before != nil {
			m.before()
		}
		return fmt.Errorf("%w: made up", sqlstore.ErrRowMissing)
	})
}

// TestMissingRowIsDataLoss: a commit that found a row missing took effect. It must not
// be answered as if it had not been executed, whatever else ended the leadership, and no
// member may serve before the table is recovered.
func TestMissingRowIsDataLoss(t *testing.T) {
	for name, deposed := range map[string]bool{"leading": false, "deposed in the same moment": true} {
		t.Run(name, func(t *testing.T) {
			m := &missingRow{Store: newStore(t)}
			p := newPair(t, m)
			p.lead(0)
			b := p.nodes[0]
			if deposed {
				m.before = func() { _ = b.leading.Load().End(fence.ErrDeposed) }
			}
			m.armed.Store(true)
			_, err := b.Txn(t.Context(), auth.System, put("k", "v"), true)
			if !errors.Is(err, mvcc.ErrLeaderLost) || errors.Is(err, mvcc.ErrNotLeader) || errors.Is(err, mvcc.ErrNotServing) {
				t.Errorf("the write: %v, want ErrLeaderLost alone", err)
			}
			eventually.True(t, "the node to stop", func() bool { return b.Stopped() != nil })
			if err := b.Stopped(); !errors.Is(err, fence.ErrDataLost) || !errors.Is(err, sqlstore.ErrRowMissing) {
				t.Errorf("the node stopped because of %v", err)
			}
			if _, err := b.Txn(t.Context(), auth.System, put("k", "next"), true); !errors.Is(err, mvcc.ErrNotServing) {
				t.Errorf("the next write: %v, want ErrNotServing", err)
			}
			awaitMarker(t, m)
			if err := p.nodes[1].Lead(t.Context(), nil); !errors.Is(err, mvcc.ErrNotServing) {
				t.Errorf("another member leads: %v", err)
			}
			recoverTable(t, m.Store, 1, true)
			mustTxn(t, open(t, m.Store, nil), put("k", "recovered"))
		})
	}
}
