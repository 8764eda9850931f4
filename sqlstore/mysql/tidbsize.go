package mysql

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// countShare bounds the load of counting: it takes at most that fraction of the time.
const countShare = 50

// countBytes is executed where the rows are, in all regions at once.
const countBytes = "SELECT COALESCE(SUM(LENGTH(internal_key) + LENGTH(object_value)), 0) FROM object"

// rowBytes counts the bytes of the rows on TiDB, whose statistics do not say them: they are a guess from samples, which
// may be hours old.
type rowBytes struct {
	written atomic.Int64 // since the rows were counted: bytes of rows that commits of this process put

	mu       sync.Mutex
	counting bool  // a call counts the rows
	known    bool  // they were counted
	counted  int64 // then
	next     time.Time
}

// put adds the rows that a commit puts. A commit that fails counts too, until the rows are counted again.
func (r *rowBytes) put(ops []sqlstore.Op) {
	n := 0
	for _, op := range ops {
		if op.Value != nil {
			n += len(op.Key) + len(op.Value)
		}
	}
	r.written.Add(int64(n))
}

// size returns the bytes of all rows, or more: what has been replaced and deleted since they were counted is not known.
// known is false if they have not been counted yet.
func (r *rowBytes) size(ctx context.Context, conn *sql.Conn) (bytes int64, known bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if began := time.Now(); !r.counting && !began.Before(r.next) {
		r.counting = true
		r.mu.Unlock()
		before, counted := r.written.Load(), int64(0)
		err = conn.QueryRowContext(ctx, countBytes).Scan(&counted)
		r.mu.Lock()
		r.counting, r.next = false, time.Now().Add(countShare*time.Since(began))
		if err == nil {
			r.known, r.counted = true, counted
			r.written.Add(-before)
		}
	}
	return r.counted + r.written.Load(), r.known, err
}
