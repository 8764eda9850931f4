package sqldb

import (
	"context"
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// commitAttempts bounds how often a commit is tried that lost against another
// transaction or found its connection gone before it was sent.
const commitAttempts = 5

// BeginBatchWrite implements sqlstore.KvStorage.
func (s *Store) BeginBatchWrite() sqlstore.BatchWrite {
	return sqlstore.NewBatch(func(ctx context.Context, ops []sqlstore.Op) error {
		if err := s.fits(ops); err != nil {
			return err
		}
		return s.call(ctx, "", func(ctx context.Context) error { return s.commit(ctx, ops) })
	})
}

func (s *Store) commit(ctx context.Context, ops []sqlstore.Op) error {
	statement, attempt := s.db.engine.Commit(s.info, ops)
	defer s.db.dropLate(ctx, s.db.write, time.Now())
	return s.observe(ctx, statement, func() error {
		for n := 1; ; n++ {
			again, err := s.attempt(ctx, attempt)
			if !again || n == commitAttempts || ctx.Err() != nil {
				return err
			}
			s.metrics.retries.Inc()
			s.metrics.failed(s.db.engine, err)
		}
	})
}

// attempt runs one try of a commit on its own connection, so that database/sql
// repeats nothing.
func (s *Store) attempt(ctx context.Context, attempt Attempt) (again bool, err error) {
	conn, err := s.db.write.Conn(ctx)
	if err != nil {
		return false, RolledBack(ctx, s.db.engine, err)
	}
	defer conn.Close() // only returns it to the pool
	return attempt(ctx, conn)
}

// fits returns sqlstore.ErrTooLarge for a batch that no engine, or this one, can
// hold.
func (s *Store) fits(ops []sqlstore.Op) error {
	total := 0
	for _, op := range ops {
		row := len(op.Key) + len(op.Value)
		total += row
		switch {
		case len(op.Key) > MaxKey:
			return fmt.Errorf("%w: a key of %d bytes, at most %d fit", sqlstore.ErrTooLarge, len(op.Key), MaxKey)
		case len(op.Value) > MaxValue:
			return fmt.Errorf("%w: a value of %d bytes, at most %d fit", sqlstore.ErrTooLarge, len(op.Value), MaxValue)
		case row > s.info.MaxRow:
			return fmt.Errorf("%w: a row of %d bytes, the server's limits leave %d", sqlstore.ErrTooLarge, row, s.info.MaxRow)
		}
	}
	if s.info.MaxBatch > 0 && total > s.info.MaxBatch {
		return fmt.Errorf("%w: a batch of %d bytes, the server's limits leave %d", sqlstore.ErrTooLarge, total,
			s.info.MaxBatch)
	}
	return nil
}
