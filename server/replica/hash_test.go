package replica

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"strings"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// turning is a store whose iterations over version rows read one row at a time, and call
// between before each.
type turning struct {
	sqlstore.Store
	between func(rows int)
}

func (s *turning) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	if !bytes.HasPrefix(r.Start, coder.EncodeVersionKey(nil, 0)[:4]) {
		return s.Store.Iter(ctx, r)
	}
	r.PageBytes = 1
	return func(yield func(sqlstore.Row, error) bool) {
		rows := 0
		next := func() {
			if s.between != nil {
				s.between(rows)
			}
			rows++
		}
		next()
		for row, err := range s.Store.Iter(ctx, r) {
			if !yield(row, err) {
				return
			}
			next()
		}
	}
}

// rows returns the rows of internal keys, all of which must be there.
func (s *turning) rows(t *testing.T, keys ...[]byte) []sqlstore.Row {
	t.Helper()
	values, err := s.MultiGet(t.Context(), keys)
	rows := make([]sqlstore.Row, len(keys))
	for i, key := range keys {
		if err != nil || values[i] == nil {
			t.Fatal(values, err)
		}
		rows[i] = sqlstore.Row{Key: key, Value: values[i]}
	}
	return rows
}

// removeWhileRead puts rows back, as if they had not been removed yet, until the first
// of an iteration was read; removed says whether that happened.
func (s *turning) removeWhileRead(t *testing.T, rows []sqlstore.Row) (removed *bool) {
	t.Helper()
	change := func(f func(sqlstore.BatchWrite, sqlstore.Row)) {
		batch := s.BeginBatchWrite()
		for _, row := range rows {
			f(batch, row)
		}
		if err := batch.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	}
	change(func(w sqlstore.BatchWrite, row sqlstore.Row) { w.Put(row.Key, row.Value) })
	removed = new(bool)
	s.between = func(read int) {
		if read == 1 && !*removed {
			*removed = true
			change(func(w sqlstore.BatchWrite, row sqlstore.Row) { w.Del(row.Key) })
		}
	}
	return removed
}

// etcd hashes, by revision, the versions after the compact revision, and those up to it that are current at the hash's
// revision; if no key exists there, all that compaction has left.
func TestHashKVCoversWhatEtcdHashes(t *testing.T) {
	store := &turning{Store: newStore(t)}
	b := open(t, store, nil)
	const first, compacted = 2, 12
	changes := strings.Fields("z -z a a -a b c d b x -x -c a d e -e -b -a -d") // a key, or - and a deleted key
	for _, c := range changes {
		if key, deleted := strings.CutPrefix(c, "-"); deleted {
			mustTxn(t, b, del(key))
		} else {
			mustTxn(t, b, put(key, ""))
		}
	}
	marshal := func(r *coder.Record) ([]byte, error) { return fmt.Appendf(nil, "%s%d", r.Key, r.ModRevision), nil }
	covers := func(rev int64, versions ...int64) {
		t.Helper()
		hashed := []byte("key")
		for _, v := range versions {
			hashed = append(binary.BigEndian.AppendUint64(hashed, uint64(v)), "_\x00\x00\x00\x00\x00\x00\x00\x00"...)
			key, deleted := strings.CutPrefix(changes[v-first], "-")
			if deleted {
				hashed = append(hashed, 't')
			}
			hashed = fmt.Appendf(hashed, "%s%d", key, v)
		}
		h, err := b.Exporter.HashKV(t.Context(), auth.System, rev, marshal)
		if want := crc32.Checksum(hashed, crc32.MakeTable(crc32.Castagnoli)); err != nil || h.Hash != want {
			t.Errorf("at %d: %v, %v; want %v, that of %v", rev, h, err, want, versions)
		}
	}
	covers(6, 2, 3, 4, 5, 6)
	covers(20, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)
	left := store.rows(t, coder.EncodeVersionKey([]byte("z"), 2), coder.EncodeIndexKey([]byte("z")))
	if _, err := b.Compact(t.Context(), auth.System, compacted, true); err != nil {
		t.Fatal(err)
	}
	after := func() {
		covers(12, 8, 9, 10)
		covers(13, 9, 10, 13)
		covers(15, 10, 13, 14, 15)
		covers(18, 13, 14, 15, 16, 17, 18)
		covers(20, 8, 9, 10, 13, 14, 15, 16, 17, 18, 19, 20)
	}
	after()
	batch := store.BeginBatchWrite()
	for _, row := range left { // as if they were still to be removed
		batch.Put(row.Key, row.Value)
	}
	if err := batch.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	after()
}

// The rows of a key that was deleted below the compact revision go away together,
// but maybe between the reading of one and of the other: the hash must not take
// the first for one that compaction keeps, nor fail.
func TestHashKVDuringCompaction(t *testing.T) {
	store := &turning{Store: newStore(t)}
	b := open(t, store, nil)
	mustTxn(t, b, put("a", "1"))
	mustTxn(t, b, del("a"))
	mustTxn(t, b, put("b", "1"))
	mustTxn(t, b, put("b", "2"))
	left := store.rows(t, coder.EncodeVersionKey([]byte("a"), 2), coder.EncodeIndexKey([]byte("a")))
	mustCompact(t, b, 4, true)
	marshal := func(r *coder.Record) ([]byte, error) { return r.Value, nil }
	want, err := b.Exporter.HashKV(t.Context(), auth.System, 0, marshal)
	if err != nil {
		t.Fatal(err)
	}
	removed := store.removeWhileRead(t, left)
	got, err := b.Exporter.HashKV(t.Context(), auth.System, 0, marshal)
	if err != nil || got != want || !*removed {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// TestHashAtCompactRevisionIsEqualOnAllMembers: it covers what is left, whether the
// rows are gone yet or not, and whoever leads.
func TestHashAtCompactRevisionIsEqualOnAllMembers(t *testing.T) {
	p := newPair(t, newStore(t))
	p.lead(0)
	for _, txn := range []*mvcc.Txn{put("a", "1"), put("a", "2"), put("b", "1"), del("b"), put("c", "1"), put("c", "2")} {
		mustTxn(t, p.nodes[0], txn)
	}
	mustCatchUp(t, p.nodes[1])
	marshal := func(r *coder.Record) ([]byte, error) { return r.Value, nil }
	hash := func(i int, rev int64) export.Hash {
		t.Helper()
		h, err := p.nodes[i].Exporter.HashKV(t.Context(), auth.System, rev, marshal)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	mustCompact(t, p.nodes[0], 6, false)
	want := hash(0, 6)
	if want.CompactRevision != 6 || want.HashRevision != 6 {
		t.Errorf("%+v", want)
	}
	if removed, err := p.nodes[0].leading.Load().compactor.Wait(t.Context(), 6, nil); err != nil || !removed {
		t.Fatal(removed, err)
	}
	for i := range p.nodes {
		if got := hash(i, 6); got != want {
			t.Errorf("member %d gives %+v, want %+v", i, got, want)
		}
		if _, err := p.nodes[i].Exporter.HashKV(t.Context(), auth.System, 5, marshal); !errors.Is(err, mvcc.ErrCompacted) {
			t.Errorf("member %d below the compact revision: %v", i, err)
		}
	}
	p.mustResign(0)
	p.lead(1)
	if got := hash(1, 6); got != want {
		t.Errorf("the next leader gives %+v, want %+v", got, want)
	}
}
