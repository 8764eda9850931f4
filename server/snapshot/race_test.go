package snapshot

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// smallPages is a store whose iterations read one row at a time.
type smallPages struct{ sqlstore.Store }

func (s smallPages) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	r.PageBytes = 1
	return func(yield func(sqlstore.Row, error) bool) {
		for row, err := range s.Store.Iter(ctx, r) {
			runtime.Gosched() // others run between two rows
			if !yield(row, err) {
				return
			}
		}
	}
}

// written is the history that a writer has made: what each revision did to one key.
type written struct {
	mu      sync.Mutex
	changes map[int64]string // "key" deleted, "key=value" put
}

// at returns the keys of a revision, as key=value.
func (w *written) at(rev int64) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := map[string]string{}
	for r := int64(2); r <= rev; r++ {
		key, value, put := strings.Cut(w.changes[r], "=")
		if put {
			keys[key] = value
		} else {
			delete(keys, key)
		}
	}
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		lines = append(lines, k+"="+keys[k])
	}
	return lines
}

// TestSnapshotsAreConsistentDuringWritesAndCompactions: each is the store at its revision, and at every
// one before it from its compact revision on.
func TestSnapshotsAreConsistentDuringWritesAndCompactions(t *testing.T) {
	table := smallPages{newStore(t)}
	b := serve(t, table)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	past := &written{changes: make(map[int64]string)}
	var allowed atomic.Int64 // compaction goes no further: it would end the snapshot
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		r := rand.New(rand.NewPCG(seed, 0))
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			key := fmt.Sprint("k", r.IntN(100))
			op, change := put(key, fmt.Sprint(i), 0), fmt.Sprint(key, "=", i)
			if r.IntN(2) == 0 {
				op, change = del(key, ""), key
			}
			before := b.Revision()
			res, err := b.Txn(t.Context(), auth.System, &mvcc.Txn{Then: []mvcc.Op{op}}, true)
			if err != nil {
				t.Error(err)
				return
			}
			if res.Revision > before { // else there was nothing to delete
				past.mu.Lock()
				past.changes[res.Revision] = change
				past.mu.Unlock()
			}
			if i%10 == 9 {
				if rev := min(allowed.Load(), b.Revision()-3); rev > b.CompactRevision() {
					if _, err := b.Compact(t.Context(), auth.System, rev, false); err != nil {
						t.Error(err)
						return
					}
				}
			}
		}
	})
	defer writer.Wait()
	defer close(stop)

	m := NewMaker(t.TempDir())
	for i := range 40 {
		f, err := m.Make(t.Context(), func() (*export.Snapshot, error) {
			open := b.Exporter.OpenSnapshot
			if i%2 == 1 { // as another process does
				open = func(ctx context.Context, _ auth.Permit) (*export.Snapshot, error) {
					return export.OpenTable(ctx, table)
				}
			}
			s, err := open(t.Context(), auth.System)
			if err == nil {
				allowed.Store(s.Revision)
			}
			return s, err
		}, testAbout)
		require.NoError(t, err)
		to := newStore(t)
		l := load(t, received(t, f), to, LoadOptions{})
		loaded := serve(t, to)
		for rev := max(l.CompactRevision, 2); rev <= l.Revision; rev += max(1, (l.Revision-l.CompactRevision)/20) {
			got, err := loaded.Reader.Range(t.Context(), auth.System,
				&mvcc.RangeRequest{KeyRange: everything, Revision: rev}, true)
			require.NoError(t, err)
			var lines []string
			for _, kv := range got.Records {
				lines = append(lines, string(kv.Key)+"="+string(kv.Value))
			}
			require.Equal(t, past.at(rev), lines, "snapshot of revision %d, compacted at %d, at revision %d", l.Revision,
				l.CompactRevision, rev)
		}
	}
	require.Positive(t, b.CompactRevision())
}
