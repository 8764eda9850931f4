package replica

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/watch"
)

const benchKeys = 50_000

func benchKey(i int) []byte { return fmt.Appendf(nil, "/registry/pods/default/pod-%06d", i) }

func benchRange(from int) mvcc.KeyRange {
	return mvcc.KeyRange{Key: benchKey(from), End: []byte("/registry/pods0")}
}

// openFilled returns a leader over benchKeys objects of size bytes each, with a cache of
// budget bytes that holds none of them yet.
func openFilled(b *testing.B, size, budget int) *Replica {
	b.Helper()
	store := newStore(b)
	writer, err := OpenLeader(b.Context(), store, exclusive(b, func(c *Config) { c.RecordCache = 0 }))
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; i < benchKeys; i += 100 {
		t := &mvcc.Txn{}
		for j := i; j < i+100; j++ {
			t.Then = append(t.Then, mvcc.Op{Put: &mvcc.PutRequest{Key: benchKey(j), Value: make([]byte, size)}})
		}
		mustTxn(b, writer, t)
	}
	closeReplica(b, writer)
	return open(b, store, func(c *Config) { c.RecordCache = budget })
}

// listAll reads every object once, by pages, so that the cache holds what it has room for.
func listAll(b *testing.B, n *Replica, keysOnly bool) {
	b.Helper()
	q := &mvcc.RangeRequest{KeyRange: benchRange(0), Limit: 500, KeysOnly: keysOnly}
	for {
		res := mustRange(b, n, q)
		if !res.More {
			return
		}
		q.Key = append(res.Records[len(res.Records)-1].Key[:len(res.Records[0].Key):len(res.Records[0].Key)], 0)
	}
}

// BenchmarkGet reads single objects of 200 bytes: those read singly before, those of a
// list, and those that no cache holds.
func BenchmarkGet(b *testing.B) {
	for _, bench := range []struct {
		name   string
		budget int
		warm   func(*Replica)
	}{
		{"single", 256 << 20, func(n *Replica) {
			for i := range benchKeys {
				mustRange(b, n, &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: benchKey(i)}})
			}
		}},
		{"listed", 256 << 20, func(n *Replica) { listAll(b, n, false) }},
		{"table", -1, func(*Replica) {}},
		{"evicting", 2 << 20, func(*Replica) {}},
	} {
		n := openFilled(b, 200, bench.budget)
		bench.warm(n)
		run := func(name string, step func(*rand.Rand) error) {
			b.Run(bench.name+name, func(b *testing.B) {
				b.ReportAllocs()
				r := rand.New(rand.NewPCG(1, 1))
				for b.Loop() {
					if err := step(r); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("", func(r *rand.Rand) error {
			_, err := n.Reader.At(n.Revision()).Get(context.Background(), benchKey(r.IntN(benchKeys)), true)
			return err
		})
		if bench.name == "single" {
			run("/Range", func(r *rand.Rand) error {
				_, err := n.Reader.Range(context.Background(), auth.System,
					&mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: benchKey(r.IntN(benchKeys))}}, true)
				return err
			})
			b.Run("single/parallel", func(b *testing.B) {
				b.RunParallel(func(pb *testing.PB) {
					r := rand.New(rand.NewPCG(rand.Uint64(), 1))
					for pb.Next() {
						if _, err := n.Reader.At(n.Revision()).Get(context.Background(), benchKey(r.IntN(benchKeys)), true); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}

// BenchmarkCount counts the objects from a random key on: of which the segments in memory
// know all, or only the number of keys in pieces is known.
func BenchmarkCount(b *testing.B) {
	for _, name := range []string{"segments", "pieces"} {
		budget := 256 << 20
		if name == "pieces" {
			budget = -1
		}
		n := openFilled(b, 200, budget)
		listAll(b, n, false)
		for _, limit := range []int64{0, 1, 500} {
			b.Run(fmt.Sprintf("%s/limit %d", name, limit), func(b *testing.B) {
				b.ReportAllocs()
				r := rand.New(rand.NewPCG(1, 1))
				for b.Loop() {
					from := r.IntN(benchKeys - 1000)
					res := mustRange(b, n, &mvcc.RangeRequest{KeyRange: benchRange(from), Limit: limit, CountOnly: limit == 0})
					if res.Count != int64(benchKeys-from) {
						b.Fatal(res.Count)
					}
				}
			})
		}
		b.Run(name+"/older revision", func(b *testing.B) {
			for i := range 1000 { // what is taken back
				mustTxn(b, n, put(fmt.Sprintf("/registry/pods/new-%d", i), ""))
			}
			r := rand.New(rand.NewPCG(1, 1))
			for b.Loop() {
				mustRange(b, n, &mvcc.RangeRequest{KeyRange: benchRange(r.IntN(benchKeys)), Revision: n.Revision() - 900,
					CountOnly: true})
			}
		})
	}
}

// BenchmarkShow makes changes of objects visible that the caches hold: in segments with
// and without values, singly, or not at all.
func BenchmarkShow(b *testing.B) {
	for name, warm := range map[string]func(*Replica){
		"listed": func(n *Replica) { listAll(b, n, false) },
		"keys":   func(n *Replica) { listAll(b, n, true) },
		"single": func(n *Replica) {
			for i := range benchKeys {
				mustRange(b, n, &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: benchKey(i)}})
			}
		},
		"unknown": func(*Replica) {},
	} {
		n := openFilled(b, 200, 256<<20)
		warm(n)
		revs := make([]int64, benchKeys)
		for i := range revs {
			revs[i] = int64(i/100 + 2)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			value := make([]byte, 200)
			r := rand.New(rand.NewPCG(1, 1))
			for b.Loop() {
				i, rev := r.IntN(benchKeys), n.Revision()+1
				rec := &coder.Record{Key: benchKey(i), Value: value, CreateRevision: 2, Version: 2, ModRevision: rev}
				if err := n.publish([]*watch.Event{{Record: rec, PrevRevision: revs[i]}}, rev); err != nil {
					b.Fatal(err)
				}
				revs[i] = rev
			}
		})
	}
}

// BenchmarkMemory reports how many bytes of memory an object of 200 bytes takes in the
// caches, and how many of them are accounted for.
func BenchmarkMemory(b *testing.B) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for name, warm := range map[string]func(*Replica){
		"listed": func(n *Replica) { listAll(b, n, false) },
		"keys":   func(n *Replica) { listAll(b, n, true) },
		"single": func(n *Replica) {
			for i := range benchKeys {
				mustRange(b, n, &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: benchKey(i)}})
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				n := openFilled(b, 200, 256<<20)
				before := heap()
				warm(n)
				b.ReportMetric(float64(heap()-before)/benchKeys, "B/key")
				b.ReportMetric(float64(cachedBytes(n))/benchKeys, "accounted-B/key")
				runtime.KeepAlive(n)
			}
		})
	}
}

func cachedBytes(n *Replica) int {
	s := n.view.Stats()
	return s.RecordBytes + s.SegmentBytes
}
