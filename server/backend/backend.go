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
	QuotaBytes     int64         // space quota, 0: none
	RequestTimeout time.Duration // bound on a request, 7 s as in etcd
	CommitTimeout  time.Duration // bound on a commit, then its outcome counts as unknown, and on what a write reads; 10 s
	MinLeaseTTL    int64         // seconds, 2 as in etcd at its default settings
	QueueLength    int           // requests waiting for a batch, 8192
	BatchRequests  int           // most requests of one commit, 256
	BatchRows      int           // most rows of one commit, unless one request has more, 1024
	BatchBytes     int           // most bytes of one commit, unless one request has more, 4 MiB
	IndexCache     int           // entries of the index cache, 200,000
	RecordCache    int           // bytes of the cache of current objects, 64 MiB; negative: off
	TTLPolicies    []TTLPolicy

	// AutoCompactionMode is "" (off), "periodic" or "revision"; see etcd.
	AutoCompactionMode      string
	AutoCompactionRetention time.Duration // periodic
	AutoCompactionRevisions int64         // revision

	Watch      watch.Config
	Registerer prometheus.Registerer // nil: metrics are kept, not registered
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

// Backend is one node's state over a Store. Its methods may be called from any
// goroutine.
type Backend struct {
	cfg     Config
	log     *slog.Logger
	store   sqlstore.Store
	metrics *metrics

	identity  identity
	tso       *tso.Oracle
	compacted atomic.Int64 // the compact revision, -1 if nothing was compacted
	hub       *watch.Hub
	reader    *reader
	records   *recordCache
	index     *indexCache
	lessor    *lessor
	alarms    *alarmSet
	size      *sizeGauge
	compactor *compactor

	// chain belongs to the sequencer.
	chain *chain
	// acked is the chain as of the last commit, for the fence watch and Status.
	acked atomic.Pointer[coder.Chain]

	queue         chan *request
	batches       chan *batch
	sequencerDone chan struct{}

	policies *policyLeases // sequencer only
	noSpace  chan struct{} // asks for the NOSPACE alarm

	stopped atomic.Pointer[error] // why the node does not serve
	cancel  context.CancelFunc
	workers sync.WaitGroup
}

// Open takes the leadership of the table, which stops whoever led before, and
// returns a serving backend. The caller keeps the store, and closes it behind
// the backend.
func Open(ctx context.Context, store sqlstore.Store, cfg Config) (*Backend, error) {
	b, err := prepare(ctx, store, cfg)
	if err != nil {
		return nil, err
	}
	b.start()
	held := b.acked.Load()
	b.log.Info("serving", "term", held.Term, "revision", held.Revision, "compact_revision", b.compacted.Load(),
		"cluster_id", fmt.Sprintf("%x", b.ClusterID()), "member_id", fmt.Sprintf("%x", b.MemberID()))
	return b, nil
}

// prepare is Open without the goroutines of the backend itself.
func prepare(ctx context.Context, store sqlstore.Store, cfg Config) (*Backend, error) {
	cfg.setDefaults()
	b := &Backend{
		cfg: cfg, log: cfg.Logger, store: store,
		metrics:       newMetrics(cfg.Registerer),
		records:       newRecordCache(cfg.RecordCache),
		queue:         make(chan *request, cfg.QueueLength),
		batches:       make(chan *batch),
		sequencerDone: make(chan struct{}),
		policies:      newPolicyLeases(cfg.TTLPolicies),
		noSpace:       make(chan struct{}, 1),
	}
	var err error
	if b.index, err = newIndexCache(cfg.IndexCache); err != nil {
		return nil, fmt.Errorf("index cache of %d entries: %w", cfg.IndexCache, err)
	}
	counts, err := newCountCache()
	if err != nil {
		return nil, err
	}
	b.reader = &reader{store: store, cache: b.records, counts: counts, frontier: b.Revision, compacted: b.CompactRevision}
	if b.chain, err = takeChain(ctx, store, b.log, &retrier{}); err != nil {
		return nil, err
	}
	held := b.chain.held
	b.acked.Store(&held)
	b.tso = tso.New(held.Revision)
	if err := b.load(ctx); err != nil {
		return nil, err
	}
	b.metrics.observe(b)
	b.hub = watch.NewHub(history{b}, held.Revision, b.compacted.Load(), cfg.Watch)
	return b, nil
}

// load restores what is kept in memory.
func (b *Backend) load(ctx context.Context) error {
	mark, err := b.store.Get(ctx, coder.CompactKey())
	switch {
	case errors.Is(err, sqlstore.ErrKeyNotFound):
		b.compacted.Store(-1)
	case err != nil:
		return fmt.Errorf("reading the compaction mark: %w", err)
	default:
		rev, err := coder.DecodeInt64(mark)
		if err != nil {
			return fmt.Errorf("reading the compaction mark: %w", err)
		}
		b.compacted.Store(rev)
	}
	if b.identity, err = loadIdentity(ctx, b.store, b.cfg.Name); err != nil {
		return err
	}
	if b.alarms, err = loadAlarms(ctx, b.store); err != nil {
		return err
	}
	if b.lessor, err = loadLessor(ctx, b); err != nil {
		return err
	}
	b.size = &sizeGauge{store: b.store, quota: b.cfg.QuotaBytes}
	if err := b.size.refresh(ctx); err != nil {
		return fmt.Errorf("reading the size of the database: %w", err)
	}
	b.compactor = newCompactor(b)
	return nil
}

// start starts the goroutines; Close stops them.
func (b *Backend) start() {
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	for _, work := range []func(context.Context){
		b.sequence, b.collect, b.watchFence, b.lessor.run, b.compactor.run, b.autoCompact, b.watchSize,
	} {
		b.workers.Go(func() { work(ctx) })
	}
}

// Close checkpoints the leases, ends all requests and watches, and stops all
// work. It does not close the store.
func (b *Backend) Close(ctx context.Context) error {
	err := b.lessor.checkpointAll(ctx)
	b.stopped.CompareAndSwap(nil, ptr(fmt.Errorf("%w: shutting down", ErrNotServing)))
	b.cancel()
	b.workers.Wait()
	b.hub.Close()
	b.metrics.unregister()
	return err
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
	c := b.acked.Load()
	total, used := b.size.get()
	return Status{
		Revision: b.Revision(), CompactRevision: b.CompactRevision(), Term: c.Term, Sequence: c.Sequence,
		DBSize: total, DBSizeInUse: used, QuotaBytes: b.cfg.QuotaBytes, Serving: b.servingWrites(),
	}
}

// Txn executes t; single puts and deletes are transactions of one Op. A
// transaction without a write, or nested transaction, is a read at one revision.
func (b *Backend) Txn(ctx context.Context, t *Txn, linearizable bool) (*TxnResult, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	if t.writes() {
		if err := b.alarms.checkWrite(t.puts()); err != nil {
			return nil, err
		}
		if t.puts() {
			if err := b.checkSpace(); err != nil {
				return nil, err
			}
		}
		c := newTxnCommand(b, t)
		if err := b.submit(ctx, c); err != nil {
			return nil, err
		}
		return c.result, nil
	}
	return b.readTxn(ctx, t, linearizable)
}

// readTxn evaluates a read-only transaction at the frontier, outside the
// pipeline.
func (b *Backend) readTxn(ctx context.Context, t *Txn, linearizable bool) (*TxnResult, error) {
	for range maxReadRaces {
		if err := b.servingReads(linearizable); err != nil {
			return nil, err
		}
		frontier := b.tso.Frontier()
		c := newTxnCommand(b, t)
		err := c.evaluate(ctx, b.readStage(frontier))
		res := c.result
		if frontier >= b.compacted.Load() {
			return res, b.publicError(ctx, err)
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
