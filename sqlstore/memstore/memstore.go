// Package memstore is the in-memory reference implementation of sqlstore.Store:
// the simplest reading of the contract, for tests of the packages above it and as the
// reference of the conformance suite.
//
// It upholds the contract by construction: the table is an immutable ordered
// tree, which an atomic pointer holds. A commit builds the next tree and swaps the pointer,
// and every read uses one tree. Where the contract leaves a choice it takes the strict one:
// compare-and-swap compares whole values, and Iter reads page by page, each page from its
// own tree. A caller that relies on more fails already here.
package memstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/btree"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

const (
	degree       = 32
	pageRows     = 128
	pageBytes    = 1 << 20
	maxValue     = 1<<24 - 1 // MEDIUMBLOB's, so that the limit is tested above too
	bytesPerPage = 4 << 20
)

type tree = btree.BTreeG[sqlstore.Row]

// Store implements sqlstore.Store. Safe for concurrent use.
type Store struct {
	writer sync.Mutex // serialises commits
	table  atomic.Pointer[tree]
	closed atomic.Bool
}

var _ sqlstore.Store = (*Store)(nil)

// New returns an empty store. It holds no goroutine and no file.
func New() *Store {
	s := &Store{}
	s.table.Store(btree.NewG(degree, func(a, b sqlstore.Row) bool { return bytes.Compare(a.Key, b.Key) < 0 }))
	return s
}

func (s *Store) snapshot(ctx context.Context) (*tree, error) {
	if s.closed.Load() {
		return nil, sqlstore.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.table.Load(), nil
}

// GetPartitions implements sqlstore.KvStorage: there is one partition.
func (s *Store) GetPartitions(ctx context.Context, start, end []byte) ([]sqlstore.Partition, error) {
	if _, err := s.snapshot(ctx); err != nil {
		return nil, err
	}
	return []sqlstore.Partition{{Start: bytes.Clone(start), End: bytes.Clone(end)}}, nil
}

// Get implements sqlstore.KvStorage.
func (s *Store) Get(ctx context.Context, key []byte) ([]byte, error) {
	t, err := s.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	row, ok := t.Get(sqlstore.Row{Key: key})
	if !ok {
		return nil, fmt.Errorf("%w: %x", sqlstore.ErrKeyNotFound, key)
	}
	return own(row.Value), nil
}

// MultiGet implements sqlstore.KvStorage.
func (s *Store) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	t, err := s.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	values := make([][]byte, len(keys))
	for i, key := range keys {
		if row, ok := t.Get(sqlstore.Row{Key: key}); ok {
			values[i] = own(row.Value)
		}
	}
	return values, nil
}

// Iter implements sqlstore.KvStorage.
func (s *Store) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	if r.PageBytes <= 0 {
		r.PageBytes = pageBytes
	}
	return sqlstore.Pages(r, func(r sqlstore.Range) (page []sqlstore.Row, more bool, err error) {
		t, err := s.snapshot(ctx)
		if err != nil {
			return nil, false, err
		}
		limit, size := pageRows, 0
		if r.Limit > 0 {
			limit = min(limit, r.Limit)
		}
		walk := ascend
		if r.Reverse {
			walk = descend
		}
		walk(t, r.Start, r.End, func(row sqlstore.Row) bool {
			if more = len(page) == limit || size >= r.PageBytes; more {
				return false
			}
			out := sqlstore.Row{Key: own(row.Key)}
			if !r.KeysOnly {
				out.Value = own(row.Value)
			}
			size += len(out.Key) + len(out.Value)
			page = append(page, out)
			return true
		})
		return page, more, nil
	})
}

// Timestamp implements sqlstore.KvStorage.
func (s *Store) Timestamp(ctx context.Context) (time.Time, error) {
	if _, err := s.snapshot(ctx); err != nil {
		return time.Time{}, err
	}
	return time.Now(), nil
}

// Close implements sqlstore.KvStorage.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}

// List implements sqlstore.Store.
func (s *Store) List(ctx context.Context, q sqlstore.ListQuery) (rows []sqlstore.ListRow, more bool, err error) {
	t, err := s.snapshot(ctx)
	if err != nil {
		return nil, false, err
	}
	limit := q.MaxBytes
	if limit <= 0 {
		limit = bytesPerPage
	}
	size := 0
	ascend(t, q.Start, q.End, func(row sqlstore.Row) bool {
		if q.Limit > 0 && len(rows) == q.Limit || size >= limit {
			more = true
			return false
		}
		out := sqlstore.ListRow{Key: own(row.Key), Index: own(row.Value)}
		if !q.KeysOnly {
			if out.Version, err = versionOf(t, row); err != nil {
				return false
			}
		}
		size += len(out.Key) + len(out.Index) + len(out.Version)
		rows = append(rows, out)
		return true
	})
	if err != nil {
		return nil, false, err
	}
	return rows, more, nil
}

// Lookup implements sqlstore.Store.
func (s *Store) Lookup(ctx context.Context, keys [][]byte, maxBytes int) (
	rows []sqlstore.ListRow, more bool, err error) {
	t, err := s.snapshot(ctx)
	if err != nil {
		return nil, false, err
	}
	rows = make([]sqlstore.ListRow, len(keys))
	size := 0
	for i, key := range keys {
		if maxBytes > 0 && size >= maxBytes {
			return rows, true, nil
		}
		row, ok := t.Get(sqlstore.Row{Key: key})
		if !ok {
			continue
		}
		rows[i] = sqlstore.ListRow{Key: own(row.Key), Index: own(row.Value)}
		if rows[i].Version, err = versionOf(t, row); err != nil {
			return nil, false, err
		}
		size += len(row.Key) + len(row.Value) + len(rows[i].Version)
	}
	return rows, false, nil
}

func versionOf(t *tree, index sqlstore.Row) ([]byte, error) {
	key, err := coder.NamedVersionKey(index.Key, index.Value)
	if err != nil {
		return nil, err
	}
	version, ok := t.Get(sqlstore.Row{Key: key})
	if !ok {
		return nil, nil
	}
	return own(version.Value), nil
}

// Count implements sqlstore.Store.
func (s *Store) Count(ctx context.Context, start, end []byte, rev int64) (live, newer int64, err error) {
	t, err := s.snapshot(ctx)
	if err != nil {
		return 0, 0, err
	}
	ascend(t, start, end, func(row sqlstore.Row) bool {
		x, e := coder.DecodeIndex(row.Value)
		switch {
		case e != nil:
			err = e
		case x.ModRevision > rev:
			newer++
		case !x.Tombstone:
			live++
		}
		return err == nil
	})
	if err != nil {
		return 0, 0, err
	}
	return live, newer, nil
}

// SeekNth implements sqlstore.Store.
func (s *Store) SeekNth(ctx context.Context, start, end []byte, n int) (key []byte, err error) {
	t, err := s.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	ascend(t, start, end, func(row sqlstore.Row) bool {
		if n == 0 {
			key = own(row.Key)
		}
		n--
		return n >= 0
	})
	return key, nil
}

// LatestAtOrBefore implements sqlstore.Store.
func (s *Store) LatestAtOrBefore(ctx context.Context, ranges []sqlstore.Partition) ([]sqlstore.Row, error) {
	t, err := s.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	rows := make([]sqlstore.Row, len(ranges))
	for i, r := range ranges {
		descend(t, r.Start, r.End, func(row sqlstore.Row) bool {
			rows[i] = sqlstore.Row{Key: own(row.Key), Value: own(row.Value)}
			return false
		})
	}
	return rows, nil
}

// Lengths implements sqlstore.Store.
func (s *Store) Lengths(ctx context.Context, keys [][]byte) ([]int, error) {
	t, err := s.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	lengths := make([]int, len(keys))
	for i, key := range keys {
		if lengths[i] = -1; t.Has(sqlstore.Row{Key: key}) {
			row, _ := t.Get(sqlstore.Row{Key: key})
			lengths[i] = len(row.Value)
		}
	}
	return lengths, nil
}

// Measure implements sqlstore.Store.
func (s *Store) Measure(ctx context.Context, q sqlstore.MeasureQuery) (m sqlstore.Measured, err error) {
	t, err := s.snapshot(ctx)
	if err != nil {
		return m, err
	}
	ascend(t, q.Start, q.End, func(row sqlstore.Row) bool {
		m.Bytes, m.Rows, m.Last = m.Bytes+int64(len(row.Key)+len(row.Value)), m.Rows+1, own(row.Key)
		return m.Rows != int64(q.Limit)
	})
	for i, key := range q.Also {
		if row, ok := t.Get(sqlstore.Row{Key: key}); ok {
			m.Also[i] = own(row.Value)
		}
	}
	return m, nil
}

// Size implements sqlstore.Store: it has no file.
func (s *Store) Size(ctx context.Context) (total, inUse int64, err error) {
	m, err := s.Measure(ctx, sqlstore.MeasureQuery{Start: []byte{}, End: bytes.Repeat([]byte{0xff}, coder.MaxInternalKey)})
	return 0, m.Bytes, err
}

// FreeSpace implements sqlstore.Store; it does not know.
func (s *Store) FreeSpace(ctx context.Context) (free, reserve int64, err error) {
	_, err = s.snapshot(ctx)
	return 0, 0, err
}

// Defragment implements sqlstore.Store; there is nothing to give back.
func (s *Store) Defragment(ctx context.Context) error {
	_, err := s.snapshot(ctx)
	return err
}

// BeginBatchWrite implements sqlstore.KvStorage.
func (s *Store) BeginBatchWrite() sqlstore.BatchWrite { return sqlstore.NewBatch(s.commit) }

func (s *Store) commit(ctx context.Context, ops []sqlstore.Op) error {
	for _, op := range ops {
		if len(op.Key) > coder.MaxInternalKey || len(op.Value) > maxValue {
			return fmt.Errorf("%w: key of %d and value of %d bytes", sqlstore.ErrTooLarge, len(op.Key), len(op.Value))
		}
	}
	s.writer.Lock()
	defer s.writer.Unlock()
	t, err := s.snapshot(ctx)
	if err != nil {
		return err
	}
	next := t.Clone()
	for _, op := range ops {
		if err := apply(next, op); err != nil {
			return err
		}
	}
	s.table.Store(next)
	return nil
}

func apply(t *tree, op sqlstore.Op) error {
	current, exists := t.Get(sqlstore.Row{Key: op.Key})
	same := exists && bytes.Equal(current.Value, op.Old)
	conflict := false
	switch op.Kind {
	case sqlstore.OpPutIfNotExist:
		conflict = exists
	case sqlstore.OpCAS:
		conflict = !same
	case sqlstore.OpCASOrPut:
		conflict = exists && !same
	case sqlstore.OpPut:
	case sqlstore.OpDel:
		t.Delete(sqlstore.Row{Key: op.Key})
		return nil
	case sqlstore.OpDelCurrent:
		if same {
			t.Delete(sqlstore.Row{Key: op.Key})
		}
		return nil
	default:
		return errors.New("memstore: unknown kind of change")
	}
	if conflict {
		c := &sqlstore.Conflict{Key: own(op.Key)}
		if exists {
			c.Value = own(current.Value)
		}
		return c
	}
	t.ReplaceOrInsert(sqlstore.Row{Key: own(op.Key), Value: own(op.Value)})
	return nil
}

// ascend calls f for the rows of [start, end) until it returns false.
func ascend(t *tree, start, end []byte, f func(sqlstore.Row) bool) {
	if bytes.Compare(start, end) < 0 {
		t.AscendRange(sqlstore.Row{Key: start}, sqlstore.Row{Key: end}, f)
	}
}

// descend is ascend in reverse order.
func descend(t *tree, start, end []byte, f func(sqlstore.Row) bool) {
	if bytes.Compare(start, end) >= 0 {
		return
	}
	t.DescendLessOrEqual(sqlstore.Row{Key: end}, func(row sqlstore.Row) bool {
		if bytes.Equal(row.Key, end) {
			return true
		}
		return bytes.Compare(row.Key, start) >= 0 && f(row)
	})
}

// own returns a copy that the caller may change, never nil.
func own(b []byte) []byte { return append([]byte{}, b...) }
