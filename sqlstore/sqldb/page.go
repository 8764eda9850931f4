package sqldb

import (
	"context"
	"database/sql"
	"sync/atomic"
)

// sizer estimates how many rows make so many bytes, from the rows seen before. A
// statement needs a row limit before its first row is known, and unneeded rows still
// cross the network.
type sizer struct{ average atomic.Int64 }

func newSizer(guess int64) *sizer {
	s := &sizer{}
	s.average.Store(guess)
	return s
}

// rows returns the row limit for a page of size bytes. It adds a quarter to the estimate,
// so that one statement is enough in most cases.
func (s *sizer) rows(size int) int {
	n := int64(size) + int64(size)/4
	return int(min(max(n/max(s.average.Load(), 1), minPageRows), maxPageRows))
}

// learn records that n rows had size bytes in total.
func (s *sizer) learn(n, size int) {
	if n == 0 {
		return
	}
	// Racing calls lose a sample, which does no harm.
	s.average.Store((3*s.average.Load() + int64(size/n)) / 4)
}

// maxDrain is how many bytes of unneeded rows are read to keep a connection. With more,
// the connection is closed and replaced.
const maxDrain = 8 << 20

// page runs a statement with a row limit and calls scan for each row until scan reports
// that no more are needed; scan returns the row's bytes. A server continues to send the
// requested rows. If those are many, page closes the connection.
func (s *Store) page(ctx context.Context, q Querier, text string, args []any, limit int,
	scan func(*sql.Rows) (size int, more bool, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n, size, abandoned := 0, 0, false
	err := EachRow(ctx, q, text, args, func(r *sql.Rows) (bool, error) {
		rowSize, more, err := scan(r)
		n, size = n+1, size+rowSize
		if err == nil && !more && (limit-n)*max(size/n, rowSize) > maxDrain && s.db.pools.Remote {
			abandoned = true
			cancel()
		}
		return more, err
	})
	if abandoned {
		return nil // only closing the connection can have failed
	}
	return err
}
