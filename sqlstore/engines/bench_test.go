package engines_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func benchKey(i int) []byte { return fmt.Appendf(nil, "/registry/pods/default/pod-%08d", i) }

// pipeline commits what the server does: for each write a version row and an
// index row, for each batch a log row and the fence row.
type pipeline struct {
	store sqlstore.Store
	token coder.FenceToken
	index map[int]coder.Index
	value []byte
}

func newPipeline(b testing.TB, s sqlstore.Store) *pipeline {
	p := &pipeline{store: s, token: coder.FenceToken{Sequence: 1, Revision: 1}, index: map[int]coder.Index{},
		value: make([]byte, *benchValue)}
	for i := range p.value {
		p.value[i] = byte(7 * i)
	}
	w := s.BeginBatchWrite()
	w.PutIfNotExist(coder.FenceKey(), coder.EncodeFenceToken(p.token))
	if err := w.Commit(context.Background()); err != nil {
		b.Fatal(err)
	}
	return p
}

func (p *pipeline) write(b testing.TB, keys ...int) {
	w := p.store.BeginBatchWrite()
	next := coder.FenceToken{Sequence: p.token.Sequence + 1, Revision: p.token.Revision}
	var changes []coder.Change
	for _, i := range keys {
		next.Revision++
		before, exists := p.index[i]
		r := &coder.Record{Key: benchKey(i), Value: p.value, ModRevision: next.Revision, CreateRevision: next.Revision,
			Version: before.Version + 1}
		after := coder.Index{ModRevision: r.ModRevision, PrevRevision: before.ModRevision, CreateRevision: r.CreateRevision,
			Version: r.Version}
		w.PutIfNotExist(coder.EncodeVersionKey(r.Key, r.ModRevision), coder.EncodeVersion(r))
		if exists {
			w.CAS(coder.EncodeIndexKey(r.Key), coder.EncodeIndex(after), coder.EncodeIndex(before))
		} else {
			w.PutIfNotExist(coder.EncodeIndexKey(r.Key), coder.EncodeIndex(after))
		}
		p.index[i] = after
		changes = append(changes, coder.Change{Revision: r.ModRevision, Key: r.Key, PrevRevision: before.ModRevision})
	}
	for part, row := range coder.EncodeLog(changes) {
		w.PutIfNotExist(coder.EncodeLogKey(next.Revision, uint16(part+1)), row)
	}
	w.CAS(coder.FenceKey(), coder.EncodeFenceToken(next), coder.EncodeFenceToken(p.token))
	if err := w.Commit(context.Background()); err != nil {
		b.Fatal(err)
	}
	p.token = next
}

func BenchmarkCommit(b *testing.B) {
	for _, engine := range slices.Sorted(maps.Keys(databases)) {
		for _, size := range []int{1, 8, 64, 256} {
			for _, kind := range []string{"create", "update"} {
				b.Run(fmt.Sprintf("%s/%s/%d", engine, kind, size), func(b *testing.B) {
					p := newPipeline(b, openURL(b, databases[engine](b), sqlstore.Options{}))
					keys := make([]int, size)
					for i := range keys {
						keys[i] = i
					}
					p.write(b, keys...)
					writes := 0
					for b.Loop() {
						writes += size
						if kind == "create" {
							for i := range keys {
								keys[i] += size
							}
						}
						p.write(b, keys...)
					}
					b.ReportMetric(float64(writes)/b.Elapsed().Seconds(), "writes/s")
				})
			}
		}
	}
}

// BenchmarkRead reads among 20,000 keys of 5 versions.
func BenchmarkRead(b *testing.B) {
	const keys, versions = 20_000, 5
	ctx := context.Background()
	for _, engine := range slices.Sorted(maps.Keys(databases)) {
		b.Run(engine, func(b *testing.B) {
			s := openURL(b, databases[engine](b), sqlstore.Options{})
			p := newPipeline(b, s)
			for range versions {
				for from := 0; from < keys; from += 500 {
					chunk := make([]int, 500)
					for i := range chunk {
						chunk[i] = from + i
					}
					p.write(b, chunk...)
				}
			}
			bench := func(name string, f func(i int) error) {
				b.Run(name, func(b *testing.B) {
					for i := 0; b.Loop(); i++ {
						if err := f(i * 7919 % (keys - 10_000)); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
			bench("get", func(i int) error {
				_, err := s.Get(ctx, coder.EncodeIndexKey(benchKey(i)))
				return err
			})
			bench("multiget of 500", func(i int) error {
				many := make([][]byte, 500)
				for k := range many {
					many[k] = coder.EncodeIndexKey(benchKey(i + k))
				}
				_, err := s.MultiGet(ctx, many)
				return err
			})
			bench("latest at or before, 1", func(i int) error {
				lo, hi := coder.VersionsUpTo(benchKey(i), 50_000)
				_, err := s.LatestAtOrBefore(ctx, []sqlstore.Partition{{Start: lo, End: hi}})
				return err
			})
			bench("latest at or before, 64", func(i int) error {
				ranges := make([]sqlstore.Partition, 64)
				for k := range ranges {
					ranges[k].Start, ranges[k].End = coder.VersionsUpTo(benchKey(i+k), 50_000)
				}
				_, err := s.LatestAtOrBefore(ctx, ranges)
				return err
			})
			bench("page of 500", func(i int) error {
				lo, hi := coder.IndexBounds(benchKey(i), []byte{0})
				rows, _, err := s.List(ctx, sqlstore.ListQuery{Start: lo, End: hi, Limit: 500})
				if err == nil && len(rows) != 500 {
					err = fmt.Errorf("%d rows", len(rows))
				}
				return err
			})
			bench("count of 10000", func(i int) error {
				lo, hi := coder.IndexBounds(benchKey(i), benchKey(i+10_000))
				live, newer, err := s.Count(ctx, lo, hi, 50_000)
				if err == nil && live+newer != 10_000 {
					err = fmt.Errorf("%d and %d", live, newer)
				}
				return err
			})
		})
	}
}

var benchValue = flag.Int("value", 512, "the size of the values of benchmarks, in bytes")
