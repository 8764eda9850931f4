package auth

import (
	"context"
	"iter"
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// table is a store that calls reading, if it is not nil, before rows are read.
type table struct {
	sqlstore.Store
	reading func()
}

func newTable(t *testing.T) *table {
	s := &table{Store: memstore.New()}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *table) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	if s.reading != nil {
		s.reading()
	}
	return s.Store.Iter(ctx, r)
}

// commits writes transactions to a table, one after the other.
type commits struct {
	table *table
	users *Users
	n     int64
}

// run executes change in a transaction, and commits that if change returns nil.
func (c *commits) run(t *testing.T, change func(tx Tx) error) error {
	t.Helper()
	tx := &transaction{rows: c.users.Rows(), sequence: c.n + 1, changed: make(map[string][]byte)}
	if err := change(tx); err != nil {
		return err
	}
	batch := c.table.BeginBatchWrite()
	for key, value := range tx.changed {
		if value == nil {
			batch.Del([]byte(key))
		} else {
			batch.Put([]byte(key), value)
		}
	}
	if err := batch.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.n++
	c.users.Raise(tx.rows)
	for _, f := range tx.then {
		f()
	}
	return nil
}

// transaction implements Tx.
type transaction struct {
	rows     *Rows
	sequence int64
	changed  map[string][]byte
	then     []func()
}

func (tx *transaction) AuthRows() *Rows          { return tx.rows }
func (tx *transaction) SetAuth(rows *Rows)       { tx.rows = rows }
func (tx *transaction) SetRow(key, value []byte) { tx.changed[string(key)] = value }
func (tx *transaction) Revision() int64          { return 1 }
func (tx *transaction) Sequence() int64          { return tx.sequence }
func (tx *transaction) OnCommit(f func())        { tx.then = append(tx.then, f) }
