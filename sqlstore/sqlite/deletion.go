package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"modernc.org/sqlite"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// swapRangeText visits rows in key order. After a failure the whole transaction is rolled back.
const swapRangeText = "UPDATE OR FAIL object INDEXED BY sqlite_autoindex_object_1 SET object_value = " +
	"sqlbrain_swap(?3, internal_key, object_value) WHERE internal_key >= ?1 AND internal_key <= ?2"

// swapRange makes the swaps of d by one statement over all rows from the first to the last, which calls rangeSwap.row
// for each. It reports false, and changes nothing, if there are too many others.
func (t *transaction) swapRange(ctx context.Context, c *sqldb.Conn, d *sqldb.Deletion) (done bool, err error) {
	rows, err := c.QueryContext(ctx, sqldb.SeekNthText, numbered(d.First, d.Last, int64(d.MostRows())))
	if err != nil {
		return false, err
	}
	var beyond [1]driver.Value
	if err := errors.Join(rows.Next(beyond[:]), rows.Close()); !errors.Is(err, io.EOF) {
		return false, err
	}
	s, id := &rangeSwap{swaps: d.Swaps}, lastSwap.Add(1)
	rangeSwaps.Store(id, s)
	defer rangeSwaps.Delete(id)
	_, err = c.ExecContext(ctx, swapRangeText, numbered(d.First, d.Last, id))
	if s.missed || err == nil && len(s.swaps) > 0 {
		t.at = &s.swaps[0]
		err = errMissed
	}
	return err == nil, err
}

// A rangeSwap is what is left of the swaps, in key order, of a statement over a range of rows.
type rangeSwap struct {
	swaps  []sqlstore.Op
	missed bool // the first is not possible
}

var (
	rangeSwaps sync.Map // from the first argument of sqlbrain_swap to *rangeSwap
	lastSwap   atomic.Int64
)

// row returns the new value of a row.
func (s *rangeSwap) row(key []byte, value driver.Value) (driver.Value, error) {
	if len(s.swaps) == 0 || bytes.Compare(key, s.swaps[0].Key) < 0 {
		return value, nil
	}
	op := &s.swaps[0]
	old, ok := value.([]byte)
	if s.missed = !ok || !bytes.Equal(key, op.Key) || !bytes.Equal(old, op.Old); s.missed {
		return nil, errMissed
	}
	s.swaps = s.swaps[1:]
	return op.Value, nil
}

var registerSwap = sync.OnceValue(func() error {
	return sqlite.RegisterFunction("sqlbrain_swap", &sqlite.FunctionImpl{
		NArgs:        3,
		VolatileArgs: true,
		Scalar: func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			s, ok := rangeSwaps.Load(args[0])
			key, isBlob := args[1].([]byte)
			if !ok || !isBlob {
				return nil, errMissed
			}
			return s.(*rangeSwap).row(key, args[2])
		},
	})
})

func numbered(values ...any) []driver.NamedValue {
	args := make([]driver.NamedValue, len(values))
	for i, v := range values {
		args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return args
}
