package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/tso"
	"github.com/sqlbrain/sqlbrain/watch"
)

// TTLPolicy gives keys under Prefix that are put without a lease a fixed life.
type TTLPolicy struct {
	Prefix []byte
	TTL    time.Duration
}

// Config configures a Backend. Zero values are replaced by the defaults named.
type Config struct {
	Logger         *slog.Logger
	Name           string        // member name, "default"
	Exclusive      bool          // no other process can use the store: a leader need not make sure that it is one
	ConfirmReads   bool          // ask the database before every linearizable read, in place of the read lease
	Leadership     Leadership    // who leads when this node does not; nil: nobody else can
	QuotaBytes     int64         // space quota, 0: none
	RequestTimeout time.Duration // bound on a request, 7 s as in etcd
	CommitTimeout  time.Duration // bound on a commit, then its outcome counts as unknown, and on what a write reads; 10 s
	MinLeaseTTL    int64         // seconds, 2 as in etcd at its default settings
	QueueLength    int           // requests waiting for a batch, 8192
	BatchRequests  int           // most requests of one commit, 256
	BatchRows      int           // most rows of one commit, unless one request has more, 1024
	BatchBytes     int           // most bytes of one commit, unless one request has more, 4 MiB
	IndexCache     int           // entries of the index cache, 200,000
	RecordCache    int           // bytes of the caches of current objects, 64 MiB; negative: off
	TTLPolicies    []TTLPolicy
	TokenTTL       time.Duration // how long a token that is not used stays valid, 300 s
	countPieceKeys int           // see countMap
	countChanges   int           // see countMap
	// maxSortedStream is the constant of that name, unless a test sets it.
	maxSortedStream int
	maxTxnKeys      int                  // MaxTxnKeys
	leaseClock      func() time.Duration // the function of that name, unless a test sets it

	// AutoCompactionMode is "" (off), "periodic" or "revision"; see etcd.
	AutoCompactionMode      string
	AutoCompactionRetention time.Duration // periodic
	AutoCompactionRevisions int64         // revision

	Watch      watch.Config
	Registerer prometheus.Registerer // nil: metrics are kept, not registered
	Tracer     trace.Tracer          // of writes that are part of a sampled trace; nil: off
}

func (c *Config) setDefaults() {
	setDefault(&c.Logger, slog.Default())
	setDefault(&c.Name, "default")
	setDefault(&c.RequestTimeout, 7*time.Second)
	setDefault(&c.CommitTimeout, 10*time.Second)
	setDefault(&c.MinLeaseTTL, 2)
	setDefault(&c.QueueLength, 8192)
	setDefault(&c.BatchRequests, 256)
	setDefault(&c.BatchRows, 1024)
	setDefault(&c.BatchBytes, 4<<20)
	setDefault(&c.IndexCache, 200_000)
	setDefault(&c.RecordCache, 64<<20)
	setDefault(&c.TokenTTL, 300*time.Second)
	setDefault(&c.countPieceKeys, countPieceKeys)
	setDefault(&c.countChanges, countChangesKept)
	setDefault(&c.maxSortedStream, maxSortedStream)
	setDefault(&c.maxTxnKeys, MaxTxnKeys)
	if c.leaseClock == nil {
		c.leaseClock = leaseClock
	}
	setDefault(&c.Watch.Logger, c.Logger)
	if c.Watch.Registerer == nil {
		c.Watch.Registerer = c.Registerer
	}
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Backend is one node's state over a Store: a replica, which knows the newest
// revision and answers reads and watches, and leads while Lead runs. Its methods
// may be called from any goroutine.
type Backend struct {
	cfg     Config
	log     *slog.Logger
	store   sqlstore.Store
	metrics *metrics

	identity  identity
	tso       *tso.Oracle
	published *tso.Oracle                 // how far the hub has published; follows tso
	compacted atomic.Int64                // the compact revision, -1 if nothing was compacted
	seen      atomic.Pointer[coder.Chain] // the newest value of the chain row that is known
	term      atomic.Int64                // the newest term that is known
	shown     sightings                   // what a follower may show
	hub       *watch.Hub
	reader    *reader
	records   *recordCache
	ranges    *rangeCache
	pieces    *countMap
	alarms    *alarmSet
	auth      *authState
	size      *sizeGauge
	noSpace   chan struct{} // asks for the NOSPACE alarm
	lost      chan struct{} // asks for the lost row

	positions *shared[Update] // the leader's
	marks     *shared[int64]  // the compaction mark in the table
	probe     *probe
	fed       atomic.Int64 // when a follower knew last what there is, since processStart

	leading atomic.Pointer[leader] // nil while the node does not lead
	stopped atomic.Pointer[error]  // why the node serves nothing
	cancel  context.CancelFunc
	workers sync.WaitGroup
}

// OpenReplica returns a backend that does not lead, at the newest revision in the
// table. The caller keeps the store, and closes it behind the backend.
func OpenReplica(ctx context.Context, store sqlstore.Store, cfg Config) (*Backend, error) {
	b, err := prepare(ctx, store, cfg)
	if err != nil {
		return nil, err
	}
	working, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	b.workers.Go(func() { b.watchSize(working) })
	b.workers.Go(func() { b.keepLost(working) })
	switch err := b.checkLost(ctx); {
	case errors.Is(err, errDataLost):
		_ = b.stopServing(err)
	case err != nil:
		return nil, errors.Join(err, b.Close(ctx))
	}
	if cfg.Leadership != nil {
		// The newest commit may be news to the leader, see sightings.
		if err := rest(ctx, takeoverWait); err != nil {
			return nil, errors.Join(err, b.Close(ctx))
		}
	}
	return b, nil
}

// Open returns a backend that leads until it is closed, and knows no other nodes.
// It stops whoever led before; when somebody takes over from it, it serves nothing
// any more.
func Open(ctx context.Context, store sqlstore.Store, cfg Config) (*Backend, error) {
	b, err := OpenReplica(ctx, store, cfg)
	if err != nil {
		return nil, err
	}
	l, err := b.takeOver(ctx)
	if err != nil {
		return nil, errors.Join(err, b.Close(ctx))
	}
	ready := make(chan struct{})
	working, cancel := context.WithCancel(context.Background())
	stopReplica := b.cancel
	b.cancel = func() { cancel(); stopReplica() }
	b.workers.Go(func() {
		if err := l.run(working, func(int64) { close(ready) }); err != nil {
			_ = b.stopServing(err)
		}
	})
	<-ready
	return b, nil
}

// prepare is OpenReplica without the goroutines of the backend itself.
func prepare(ctx context.Context, store sqlstore.Store, cfg Config) (*Backend, error) {
	cfg.setDefaults()
	if err := refuseRestoring(ctx, store); err != nil {
		return nil, err
	}
	b := &Backend{
		cfg: cfg, log: cfg.Logger, store: store,
		records: newRecordCache(max(cfg.RecordCache, 0)),
		alarms:  &alarmSet{},
		size:    &sizeGauge{store: store, quota: cfg.QuotaBytes},
		noSpace: make(chan struct{}, 1),
		lost:    make(chan struct{}, 1),
	}
	b.compacted.Store(-1)
	b.seen.Store(&coder.Chain{})
	b.marks = newShared(cfg.RequestTimeout, b.readMark)
	b.probe = newProbe(b)
	b.noteFed()
	b.auth = newAuthState(store, b)
	if cfg.Leadership != nil {
		b.positions = newShared(cfg.RequestTimeout, cfg.Leadership.Position)
	}
	// Ranges take most of the budget if they are read; what they leave is for
	// single records.
	budget := max(cfg.RecordCache, 0)
	ranges, err := newRangeCache(budget/4*3, func(used int) { b.records.resize(budget - used) })
	if err != nil {
		return nil, err
	}
	b.ranges = ranges
	counts, err := newCountCache()
	if err != nil {
		return nil, err
	}
	if b.identity, err = loadIdentity(ctx, store, cfg.Name); err != nil {
		return nil, err
	}
	if err := b.alarms.load(ctx, store); err != nil {
		return nil, err
	}
	if _, err := b.auth.load(ctx); err != nil {
		return nil, err
	}
	if err := b.size.refresh(ctx); err != nil {
		return nil, fmt.Errorf("reading the size of the database: %w", err)
	}
	rev, err := b.firstRevision(ctx)
	if err != nil {
		return nil, err
	}
	b.tso, b.published = tso.New(rev), tso.New(rev)
	b.pieces = newCountMap(cfg.countPieceKeys, cfg.countChanges, rev)
	b.reader = &reader{store: store, records: b.records, ranges: b.ranges, counts: counts, pieces: b.pieces, frontier: b.Revision, mark: b.mark}
	b.metrics = newMetrics(cfg.Registerer)
	b.metrics.observe(b)
	b.hub = watch.NewHub(history{b}, rev, b.compacted.Load(), cfg.Watch)
	return b, nil
}

// firstRevision reads where the table is; an empty one is at revision 1 once it is
// led.
func (b *Backend) firstRevision(ctx context.Context) (int64, error) {
	mark, err := loadMark(ctx, b.store)
	if err != nil {
		return 0, err
	}
	b.compacted.Store(mark)
	raw, err := b.store.Get(ctx, coder.ChainKey())
	switch {
	case errors.Is(err, sqlstore.ErrKeyNotFound):
		return 1, nil
	case err != nil:
		return 0, fmt.Errorf("reading the chain row: %w", err)
	}
	cur, err := coder.DecodeChain(raw)
	if err != nil {
		return 0, fmt.Errorf("reading the chain row: %w", err)
	}
	b.noteChain(cur)
	return cur.Revision, nil
}

// Close hands the leadership over, ends all requests and watches, and stops all
// work. It does not close the store. A leadership of Lead's must have ended.
func (b *Backend) Close(context.Context) error {
	b.cancel()
	b.workers.Wait()
	b.marks.close()
	b.probe.writes.close()
	b.auth.loads.close()
	if b.positions != nil {
		b.positions.close()
	}
	b.stopped.CompareAndSwap(nil, ptr(fmt.Errorf("%w: shutting down", ErrNotServing)))
	b.hub.Close()
	b.metrics.unregister()
	return nil
}

func ptr[T any](v T) *T { return &v }

// Revision returns the newest visible revision.
func (b *Backend) Revision() int64 { return b.tso.Frontier() }

// CompactRevision returns the compact revision, -1 if nothing was compacted yet.
func (b *Backend) CompactRevision() int64 { return b.compacted.Load() }

// Hub returns the hub that watches are made on.
func (b *Backend) Hub() *watch.Hub { return b.hub }

// Status returns the node's state. Sizes are refreshed every few seconds.
func (b *Backend) Status() Status {
	total, used := b.size.get()
	return Status{
		Revision: b.Revision(), CompactRevision: b.CompactRevision(), Term: b.term.Load(), Sequence: b.seen.Load().Sequence,
		DBSize: total, DBSizeInUse: used, QuotaBytes: b.cfg.QuotaBytes, Leader: b.Leader(), Serving: b.hasLeader(),
	}
}

// Txn executes t; single puts and deletes are transactions of one Op. A
// transaction without a write, or nested transaction, is a read at one revision.
func (b *Backend) Txn(ctx context.Context, t *Txn, linearizable bool) (*TxnResult, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	if t.writes() {
		l, err := b.lead()
		if err != nil {
			return nil, err
		}
		if err := b.alarms.checkWrite(t.puts()); err != nil {
			return nil, err
		}
		if t.puts() {
			if err := b.checkSpace(t.cost()); err != nil {
				return nil, err
			}
		}
		return l.writeTxn(ctx, t)
	}
	return b.readTxn(ctx, t, linearizable)
}

// writeTxn reads ahead what t needs, and executes it.
func (l *leader) writeTxn(ctx context.Context, t *Txn) (*TxnResult, error) {
	for {
		c := newTxnCommand(t)
		var err error
		if c.ahead, err = l.prepare(ctx, t); err != nil {
			return nil, l.publicError(ctx, err)
		}
		err = l.submit(ctx, c)
		l.settle(c.ahead)
		switch {
		case err == nil:
			return c.result, nil
		case !errors.Is(err, errUnprepared):
			return nil, err // the sequencer may still write c.result
		}
	}
}

// readTxn evaluates a read-only transaction at the frontier, outside the
// pipeline.
func (b *Backend) readTxn(ctx context.Context, t *Txn, linearizable bool) (*TxnResult, error) {
	for range maxReadRaces {
		frontier, err := b.readFrontier(ctx, linearizable)
		if err != nil {
			return nil, err
		}
		c := newTxnCommand(t)
		err = c.evaluate(ctx, b.readStage(frontier))
		mark, merr := b.mark(ctx)
		if merr != nil {
			return nil, b.publicError(ctx, merr)
		}
		if frontier >= mark {
			return c.result, b.publicError(ctx, err)
		}
		if err := b.tso.Wait(ctx, mark); err != nil {
			return nil, b.publicError(ctx, err)
		}
	}
	return nil, ErrCompacted
}

// bound limits a request to the server's request timeout.
func (b *Backend) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, b.cfg.RequestTimeout, ErrTimeout)
}

// publicError turns an internal error into one of errors.go where one fits.
func (b *Backend) publicError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), ErrTimeout):
		return ErrTimeout
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, sqlstore.ErrTooLarge):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	default:
		return err
	}
}
