package sqlstore

import (
	"context"
	"database/sql"
	"sync/atomic"
)

// sizer estimates how many rows make so many bytes, from the rows seen before. A
// statement needs a row limit before the first row is known, and rows it asked
// for in vain still cross the network.
type sizer struct{ average atomic.Int64 }

func newSizer(guess int64) *sizer {
	s := &sizer{}
	s.average.Store(guess)
	return s
}

// rows returns the limit to ask for when size bytes are wanted: a quarter more
// than the average says, so that one statement mostly does.
func (s *sizer) rows(size int) int {
	n := int64(size) + int64(size)/4
	return int(min(max(n/max(s.average.Load(), 1), minPageRows), maxPageRows))
}

// learn takes in that n rows had size bytes together.
func (s *sizer) learn(n, size int) {
	if n == 0 {
		return
	}
	// Racing calls lose a sample, which does no harm.
	s.average.Store((3*s.average.Load() + int64(size/n)) / 4)
}

// maxDrain is how many bytes of unwanted rows are read away to keep a
// connection, rather than dialling a new one.
const maxDrain = 8 << 20

// page runs a statement with a row limit and calls scan for each row until it
// says that it has enough; scan returns the row's bytes. A server goes on
// sending what was asked for: if that is much, the connection is given up.
func (s *DBStore) page(ctx context.Context, q querier, text string, args []any, limit int, scan func(*sql.Rows) (size int, more bool, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n, size, abandoned := 0, 0, false
	err := query(ctx, q, text, args, func(r *sql.Rows) (bool, error) {
		rowSize, more, err := scan(r)
		n, size = n+1, size+rowSize
		if err == nil && !more && (limit-n)*(size/n) > maxDrain && s.db.dialect.name() == DialectMySQL {
			abandoned = true
			cancel()
		}
		return more, err
	})
	if abandoned {
		return nil // what is left to fail is giving up the connection
	}
	return err
}
