package compact

import (
	"errors"
	"testing"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

var errDeferred = errors.New("deferred")

// moving implements Tx.
type moving struct {
	batch    sqlstore.BatchWrite
	revision int64
	moved    func()
}

func (tx *moving) Revision() int64          { return tx.revision }
func (tx *moving) RowChanged([]byte) bool   { return tx.moved != nil }
func (tx *moving) Defer() error             { return errDeferred }
func (tx *moving) SetRow(key, value []byte) { tx.batch.Put(key, value) }
func (tx *moving) OnCommit(f func())        { tx.moved = f }

func TestMarkMovesUpToTheNewestRevision(t *testing.T) {
	s := newTable(t)
	m := NewMark(s)
	expect := func(known, stored int64) {
		t.Helper()
		rev, err := m.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if m.Revision() != known || rev != stored {
			t.Errorf("the mark is at %d, and in the table at %d; want %d and %d", m.Revision(), rev, known, stored)
		}
	}
	expect(-1, -1)
	tx := &moving{batch: s.BeginBatchWrite(), revision: 7}
	move := func(rev int64, want error) {
		t.Helper()
		if err := m.Move(tx, rev, func() { m.Raise(rev) }); !errors.Is(err, want) {
			t.Errorf("to %d: %v, want %v", rev, err, want)
		}
	}
	move(8, mvcc.ErrFutureRevision)
	move(7, nil)
	move(7, errDeferred)
	expect(-1, -1)
	if err := tx.batch.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(-1, 7)
	tx.moved()
	expect(7, 7)
	tx = &moving{batch: s.BeginBatchWrite(), revision: 7}
	move(7, mvcc.ErrCompacted)
	move(6, mvcc.ErrCompacted)
	if m.Raise(6) || m.Raise(7) || !m.Raise(8) || m.Revision() != 8 {
		t.Errorf("raised to %d", m.Revision())
	}
}
