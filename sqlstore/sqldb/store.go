package sqldb

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Store is a sqlstore.Store over a SQL database. On a server it owns one goroutine, which keeps a spare connection.
type Store struct {
	db         *Database
	info       Info
	statements *Statements
	metrics    *metrics
	tracer     *tracer // nil: off
	list       *sizer  // bytes of a row of List
	keys       *sizer  // the same without values

	// life ends when Close is called, and with it all calls under way.
	life context.Context
	end  context.CancelCauseFunc

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // Add only under mu and while not closed
	beside sync.WaitGroup // what the engine runs
}

var _ sqlstore.Store = (*Store)(nil)

// Open checks db (see Database.Check) and returns a store on it; the table must exist.
// An SQLite file is locked (see Database.Lock) unless o.Shared is set. Closing the
// store closes db, and so does an error of Open.
func Open(ctx context.Context, db *Database, o sqlstore.Options) (*Store, error) {
	s, err := open(ctx, db, o)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func open(ctx context.Context, db *Database, o sqlstore.Options) (*Store, error) {
	if !o.Shared {
		if err := db.Lock(); err != nil {
			return nil, err
		}
	}
	info, err := db.Check(ctx)
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, info: info, statements: db.engine.Statements(info), tracer: newTracer(o.Tracer, info.Product),
		list: newSizer(1 << 10), keys: newSizer(1 << 7)}
	if s.metrics, err = newMetrics(o.Registerer, db); err != nil {
		return nil, err
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	beside := db.engine.Serve(db, info)
	s.beside.Go(func() { beside(s.life) })
	db.logger.InfoContext(ctx, "database opened", "url", db.url, "product", info.Product, "version", info.Version)
	return s, nil
}

// Database returns the store's pools. They close with the store.
func (s *Store) Database() *Database { return s.db }

// Info returns what Open found out about the engine.
func (s *Store) Info() Info { return s.info }

// Close implements sqlstore.KvStorage. It ends the calls under way and waits for them.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.end(sqlstore.ErrClosed)
	s.calls.Wait()
	s.beside.Wait()
	s.metrics.withdraw()
	return s.db.Close()
}

// call runs f, one call of the store, with a context that also ends when the store closes.
// It is measured as statement, unless that is empty.
func (s *Store) call(ctx context.Context, statement string, f func(context.Context) error) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return sqlstore.ErrClosed
	}
	s.calls.Add(1)
	s.mu.Unlock()
	defer s.calls.Done()
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(s.life, func() { cancel(sqlstore.ErrClosed) })
	defer stop()
	if statement == "" {
		return f(ctx)
	}
	return s.observe(ctx, statement, func() error { return f(ctx) })
}

// observe measures and traces f as statement, and notifies the engine of its error.
func (s *Store) observe(ctx context.Context, statement string, f func() error) error {
	start := time.Now()
	span := s.tracer.start(ctx, statement)
	err := f()
	endSpan(span, err)
	s.metrics.observe(statement, time.Since(start), err)
	s.metrics.failed(s.db.engine, err)
	if err != nil {
		s.db.engine.Failed(err)
	}
	return err
}
