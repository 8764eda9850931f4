package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore/internal/batch"
)

// DBStore is a Store over a SQL database. It owns no goroutine of its own.
type DBStore struct {
	db      *Database
	info    Info
	texts   *texts
	metrics *metrics
	tracer  *tracer // nil: off
	list    *sizer  // bytes of a row of List

	// life ends when Close is called; it is what ends the calls under way.
	life context.Context
	end  context.CancelCauseFunc

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // Add only under mu and while not closed
}

var _ Store = (*DBStore)(nil)

// Open opens the database u names and checks it (see Database.Check); the table
// must exist. An SQLite file is locked (see Database.Lock) unless o.Shared is set.
// Closing the store closes the database.
func Open(ctx context.Context, u *URL, o Options) (*DBStore, error) {
	db, err := OpenDB(u, o)
	if err != nil {
		return nil, err
	}
	if !o.Shared {
		if err := db.Lock(); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	info, err := db.Check(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s := &DBStore{db: db, info: info, texts: db.dialect.texts(), list: newSizer(1 << 10)}
	s.tracer = newTracer(o.Tracer, info.Product)
	if info.Product == productTiDB {
		s.texts = &tidbTexts
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	if s.metrics, err = newMetrics(o.Registerer, db); err != nil {
		s.end(ErrClosed)
		return nil, errors.Join(err, db.Close())
	}
	if db.primary != nil && info.Product != productTiDB {
		db.primary.demanded.Store(true)
		if info.grouped {
			db.primary.dropIdle() // they were made without asking the group
		}
	}
	if u.Dialect == DialectSQLite {
		warnOfModes(db.logger, u.Path)
	}
	db.logger.InfoContext(ctx, "database opened", "url", u, "product", info.Product, "version", info.Version)
	return s, nil
}

// Database returns the store's pools. They close with the store.
func (s *DBStore) Database() *Database { return s.db }

// Info returns what Open found out about the engine.
func (s *DBStore) Info() Info { return s.info }

// Close implements KvStorage. It ends the calls under way and waits for them.
func (s *DBStore) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.end(ErrClosed)
	s.calls.Wait()
	s.metrics.close()
	return s.db.Close()
}

// call runs f, one call of the store: under a context that also ends with the
// store, measured as statement, unless that is empty.
func (s *DBStore) call(ctx context.Context, statement string, f func(context.Context) error) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.calls.Add(1)
	s.mu.Unlock()
	defer s.calls.Done()
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(s.life, func() { cancel(ErrClosed) })
	defer stop()
	if statement == "" {
		return f(ctx)
	}
	return s.observe(ctx, statement, func() error { return f(ctx) })
}

// observe measures and traces f as statement, and gives the connections up if its
// error says that another server has to be looked for.
func (s *DBStore) observe(ctx context.Context, statement string, f func() error) error {
	start := time.Now()
	span := s.tracer.start(ctx, statement)
	err := f()
	endSpan(span, err)
	s.metrics.observe(statement, time.Since(start), err)
	s.metrics.failed(s.db.dialect, err)
	if s.db.primary != nil && elsewhere(err) {
		s.db.primary.giveUp(err)
	}
	return err
}

// BeginBatchWrite implements KvStorage.
func (s *DBStore) BeginBatchWrite() BatchWrite {
	return batch.New(func(ctx context.Context, ops []batch.Op) error {
		if err := s.fits(ops); err != nil {
			return err
		}
		return s.call(ctx, "", func(ctx context.Context) error { return s.db.dialect.commit(ctx, s, ops) })
	})
}

// fits returns ErrTooLarge for what no engine or this one cannot hold.
func (s *DBStore) fits(ops []batch.Op) error {
	total := 0
	for _, op := range ops {
		row := len(op.Key) + len(op.Value)
		total += row
		switch {
		case len(op.Key) > maxKey:
			return fmt.Errorf("%w: a key of %d bytes, at most %d fit", ErrTooLarge, len(op.Key), maxKey)
		case len(op.Value) > maxValue:
			return fmt.Errorf("%w: a value of %d bytes, at most %d fit", ErrTooLarge, len(op.Value), maxValue)
		case row > s.info.maxRow:
			return fmt.Errorf("%w: a row of %d bytes, the server's limits leave %d", ErrTooLarge, row, s.info.maxRow)
		}
	}
	if s.info.maxTx > 0 && total > s.info.maxTx {
		return fmt.Errorf("%w: a batch of %d bytes, the server's limits leave %d", ErrTooLarge, total, s.info.maxTx)
	}
	return nil
}
