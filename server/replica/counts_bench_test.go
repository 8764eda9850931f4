package replica

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
)

func manyKey(i int) []byte { return fmt.Appendf(nil, "/registry/pods/default/pod-%08d", i) }

// fillMany gives an empty table keys objects.
func fillMany(b *testing.B, store sqlstore.Store, keys int) {
	b.Helper()
	r, err := repair.BeginRestore(b.Context(), store, -1)
	if err != nil {
		b.Fatal(err)
	}
	for i := range keys {
		rev := int64(i + 2)
		if err := r.Put(b.Context(), &coder.Record{Key: manyKey(i), Value: make([]byte, 100), CreateRevision: rev,
			ModRevision: rev, Version: 1}); err != nil {
			b.Fatal(err)
		}
	}
	if _, _, err := r.Finish(b.Context(), 0, nil); err != nil {
		b.Fatal(err)
	}
}

var manyKeys = flag.Int("keys", 100_000, "how many keys BenchmarkFirstPage has")

// BenchmarkFirstPage reads the first page of 500 of all objects after a start: with no counts
// row, with one that a stop wrote, and with one whose leader died countsRevisions later.
func BenchmarkFirstPage(b *testing.B) {
	opener, databases := sqldbtest.Opener(engines.OpenDB), sqldbtest.Databases()
	for _, engine := range slices.Sorted(maps.Keys(databases)) {
		b.Run(fmt.Sprintf("%s/%d", engine, *manyKeys), func(b *testing.B) {
			keys := *manyKeys
			store := opener.Store(b, databases[engine](b), sqlstore.Options{})
			fillMany(b, store, keys)
			page := &mvcc.RangeRequest{KeyRange: benchRange(0), Limit: 500}
			lead := func(b *testing.B) *Replica {
				n, err := OpenLeader(b.Context(), store, exclusive(b))
				if err != nil {
					b.Fatal(err)
				}
				return n
			}
			n := lead(b)
			mustRange(b, n, page)
			closeReplica(b, n)
			stopped, err := store.Get(b.Context(), coder.CountsKey())
			if err != nil && keys >= countsKeys {
				b.Fatal(err)
			}
			start := func(name string, row []byte, want int) {
				b.Run(name, func(b *testing.B) {
					for b.Loop() {
						b.StopTimer()
						batch := store.BeginBatchWrite()
						if batch.Del(coder.CountsKey()); row != nil {
							batch = store.BeginBatchWrite()
							batch.Put(coder.CountsKey(), row)
						}
						if err := batch.Commit(b.Context()); err != nil {
							b.Fatal(err)
						}
						n := lead(b)
						b.StartTimer()
						if res := mustRange(b, n, page); res.Count != int64(want) {
							b.Fatalf("counted %d keys of %d", res.Count, want)
						}
						b.StopTimer()
						closeReplica(b, n)
						b.StartTimer()
					}
				})
			}
			start("none", nil, keys)
			start("stopped", stopped, keys)
			n = lead(b)
			var writers sync.WaitGroup
			for w := range 64 {
				writers.Go(func() {
					for i := w; i < countsRevisions; i += 64 {
						if _, err := n.Txn(b.Context(), auth.System, put(string(manyKey(i*(keys/countsRevisions)))+"x", ""),
							true); err != nil {
							b.Error(err)
						}
					}
				})
			}
			writers.Wait()
			closeReplica(b, n)
			start("died", stopped, keys+countsRevisions)
		})
	}
}
