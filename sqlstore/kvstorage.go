package sqlstore

import (
	"context"
	"iter"
	"time"
)

// KvStorage is an ordered map from internal keys to values with atomic batches.
// Keys are compared bytewise. A nil key or value never occurs; an empty value is a value.
// The store does not keep slices passed to it after the call, those of a batch after its
// Commit; they must not change before. Returned slices belong to the caller.
//
// Obligations of an implementation:
//   - A read sees every batch whose Commit returned before the read began.
//   - One Get, MultiGet or page of Iter is read from one snapshot; the whole of
//     Iter is not (callers filter by revision).
//   - Every method honours its context and returns promptly when it ends.
//   - Errors wrap the sentinels of errors.go where one fits.
//   - Safe for concurrent use.
type KvStorage interface {
	// GetPartitions returns the partitions that hold the rows of [start, end), in order.
	// Engines that do not know their partitions return one.
	GetPartitions(ctx context.Context, start, end []byte) ([]Partition, error)
	// Get returns the value of key, or ErrKeyNotFound.
	Get(ctx context.Context, key []byte) ([]byte, error)
	// MultiGet returns the values of keys in the order of keys, nil for a missing one. It
	// splits long lists into several statements.
	MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error)
	// Iter returns the rows of [r.Start, r.End) in the requested direction. It reads
	// them in pages and holds no connection between pages. An error ends the rows:
	// it comes once, with an empty Row. Each use of the sequence reads from the
	// start of the range.
	//
	//	for row, err := range store.Iter(ctx, r) {
	//		if err != nil {
	//			return err
	//		}
	//		use(row.Key, row.Value)
	//	}
	Iter(ctx context.Context, r Range) iter.Seq2[Row, error]
	// BeginBatchWrite returns an empty batch.
	BeginBatchWrite() BatchWrite
	// Timestamp returns the time by the engine's clock. It is for programs that build on a
	// store. The server does not call it: revisions order its data, and it measures silence
	// and leases by monotonic clocks.
	Timestamp(ctx context.Context) (time.Time, error)
	// Close releases all connections. Calls under way return an error.
	Close() error
}

// Range selects rows with Start <= key < End; Start >= End selects none.
type Range struct {
	Start, End []byte
	Reverse    bool // greatest key first
	Limit      int  // the most rows; 0: no limit
	PageBytes  int  // about how many bytes a page has; 0: a default
	KeysOnly   bool // rows come with a nil Value
}

// Partition is a piece [Start, End) of the key space.
type Partition struct{ Start, End []byte }

// Row is one row of the table.
type Row struct{ Key, Value []byte }

// BatchWrite collects changes and commits them atomically: all of them or none.
// A key occurs at most once in a batch. Not safe for concurrent use, and used
// for one Commit.
type BatchWrite interface {
	// PutIfNotExist creates key; if it exists the batch conflicts.
	PutIfNotExist(key, val []byte)
	// CAS replaces oldVal by newVal; the batch conflicts if key is missing or
	// holds something else. On versioned rows (see package coder) an engine may
	// compare the row versions alone: newVal carries oldVal's row version as the one it
	// replaces. newVal must differ from oldVal: an engine that accepts writes on
	// several servers compares only rows that a batch changes.
	CAS(key, newVal, oldVal []byte)
	// CASOrPut is CAS, but creates key if it is missing. Versioned rows only.
	CASOrPut(key, newVal, oldVal []byte)
	// Put creates or replaces key.
	Put(key, val []byte)
	// Del removes key if it exists.
	Del(key []byte)
	// DelCurrent removes key if it still holds val, and does nothing otherwise.
	DelCurrent(key, val []byte)
	// Len and Size return the number of changes and the bytes in them.
	Len() int
	Size() int
	// Commit makes the batch durable. It returns exactly one of:
	//   - nil: all changes are durable and visible to every later read.
	//   - *Conflict: a PutIfNotExist, CAS or CASOrPut did not find what it
	//     expected. Nothing was written.
	//   - an error wrapping ErrUncertain: the outcome is unknown, and the batch
	//     may still take effect later.
	//   - an error wrapping ErrRowMissing: the batch was applied, but a row that
	//     CAS wanted to replace was missing. The table lost data. If a row of CASOrPut is missing at the same time,
	//     only the fence row is sure to be noticed.
	//   - any other error: nothing was written, nor ever will be.
	Commit(ctx context.Context) error
}

// Store is what the server needs from an engine: KvStorage, and a few queries that an
// engine answers many times faster in one statement than through several calls of
// KvStorage.
type Store interface {
	KvStorage
	// List returns index rows of [q.Start, q.End) in key order, each joined to
	// the version row its ModRevision names (nil Version if that is missing or
	// q.KeysOnly is set). Tombstones are included. It stops after q.Limit rows
	// (0: no limit) or once about q.MaxBytes bytes were read (0: a default);
	// more reports that rows may be left. The answer is one snapshot.
	List(ctx context.Context, q ListQuery) (rows []ListRow, more bool, err error)
	// Lookup returns the index rows of keys, which are internal ones, in the order of keys: each joined as List does, or
	// an empty ListRow for a missing one. It splits long lists into several statements. It stops once about maxBytes
	// bytes were read (0: no bound), at least one row; more reports that an empty ListRow may be of a row that was
	// not read. The answer is one snapshot, but for keys that are changed and compacted during the call: they may be
	// newer.
	Lookup(ctx context.Context, keys [][]byte, maxBytes int) (rows []ListRow, more bool, err error)
	// Count counts, in one snapshot, the index rows of [start, end) that are not
	// tombstones and whose ModRevision is at most rev (live), and all those
	// with a ModRevision above rev (newer).
	Count(ctx context.Context, start, end []byte, rev int64) (live, newer int64, err error)
	// SeekNth returns the key of the row of [start, end) that n others precede; nil if
	// there are no more than n.
	SeekNth(ctx context.Context, start, end []byte, n int) (key []byte, err error)
	// LatestAtOrBefore returns for each range the row with the greatest key in it; a Row
	// with a nil Key where the range is empty.
	LatestAtOrBefore(ctx context.Context, ranges []Partition) ([]Row, error)
	// Lengths returns how many bytes the values of keys have, in the order of keys; -1 for a missing one. It splits long
	// lists into several statements. The answer is one snapshot.
	Lengths(ctx context.Context, keys [][]byte) ([]int, error)
	// Measure adds up the bytes of keys and values of rows. The answer is one snapshot.
	Measure(ctx context.Context, q MeasureQuery) (Measured, error)
	// Size returns the bytes that the engine's file takes, 0 if it does not say, and how many bytes the engine believes
	// are in use, which may be a guess.
	Size(ctx context.Context) (total, inUse int64, err error)
	// FreeSpace returns how many bytes are free on the disk of the database, and how many
	// of them are a reserve for writes that make space: what is deleted takes space until
	// it is compacted. Both are 0 if the engine does not know.
	FreeSpace(ctx context.Context) (free, reserve int64, err error)
	// Defragment gives unused space back as far as the engine can while serving.
	Defragment(ctx context.Context) error
}

// MeasureQuery selects the first Limit rows of [Start, End); see Store.Measure.
type MeasureQuery struct {
	Start, End []byte
	Limit      int       // 0: all rows
	Also       [2][]byte // keys of two rows whose values are read in the same snapshot
}

// Measured is the answer to a MeasureQuery.
type Measured struct {
	Bytes, Rows int64
	Last        []byte    // the key of the last row, nil if there is none
	Also        [2][]byte // nil for a missing row
}

// ListQuery selects index rows; see Store.List.
type ListQuery struct {
	Start, End []byte // internal bounds, from coder.IndexBounds
	Limit      int
	MaxBytes   int
	KeysOnly   bool
}

// ListRow is an index row with its version row's value.
type ListRow struct {
	Key     []byte // internal key of the index row
	Index   []byte // value of the index row
	Version []byte // value of the version row, see Store.List
}
