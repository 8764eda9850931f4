package compact

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Mark is the compaction mark: a row that holds the compact revision, and that revision as
// far as a node knows it. Safe for concurrent use.
type Mark struct {
	store    sqlstore.Store
	revision atomic.Int64
}

// NewMark returns the mark of store's table. It is not known until Raise.
func NewMark(store sqlstore.Store) *Mark {
	m := &Mark{store: store}
	m.revision.Store(-1)
	return m
}

// Revision returns the known compact revision, -1 if nothing was compacted.
func (m *Mark) Revision() int64 { return m.revision.Load() }

// Raise makes rev the known compact revision, and reports whether it was lower before.
func (m *Mark) Raise(rev int64) bool {
	for {
		known := m.revision.Load()
		if rev <= known {
			return false
		}
		if m.revision.CompareAndSwap(known, rev) {
			return true
		}
	}
}

// Read returns the compact revision in the table, -1 if nothing was compacted.
func (m *Mark) Read(ctx context.Context) (int64, error) {
	raw, err := m.store.Get(ctx, coder.CompactKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return -1, nil
	}
	var rev int64
	if err == nil {
		rev, err = coder.DecodeInt64(raw)
	}
	if err != nil {
		return 0, fmt.Errorf("reading the compaction mark: %w", err)
	}
	return rev, nil
}

// Tx is the transaction of the write pipeline that moves the mark.
type Tx interface {
	// Revision returns the newest revision.
	Revision() int64
	// RowChanged reports whether the batch changes the row already.
	RowChanged(key []byte) bool
	// Defer returns the error of a command that has to wait for the next batch.
	Defer() error
	// SetRow writes a row.
	SetRow(key, value []byte)
	// OnCommit registers f to be called after the commit.
	OnCommit(f func())
}

// Move moves the mark to rev in tx, and calls moved after the commit, which must call Raise.
// Errors: mvcc.ErrCompacted if the mark is at rev or above, mvcc.ErrFutureRevision,
// that of tx.Defer if the batch moves the mark already.
func (m *Mark) Move(tx Tx, rev int64, moved func()) error {
	switch {
	case tx.RowChanged(coder.CompactKey()):
		return tx.Defer()
	case rev <= m.Revision():
		return mvcc.ErrCompacted
	case rev > tx.Revision():
		return mvcc.ErrFutureRevision
	}
	tx.SetRow(coder.CompactKey(), coder.EncodeInt64(rev))
	tx.OnCommit(moved)
	return nil
}
