package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/coalesce"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/compact"
	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/mvcc/keyspace"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/server/steptrace"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/metric"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
	"github.com/sqlbrain/sqlbrain/tso"
	"github.com/sqlbrain/sqlbrain/watch"
)

// OpenFollower returns a replica that does not lead, at the newest revision in the
// table. The caller must close the store, after the replica.
func OpenFollower(ctx context.Context, store sqlstore.Store, cfg Config) (*Replica, error) {
	b, err := prepare(ctx, store, cfg)
	if err != nil {
		return nil, err
	}
	working, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	b.workers.Go(func() { b.space.Run(working) })
	b.workers.Go(func() { b.losses.Run(working) })
	switch err := fence.CheckDataLoss(ctx, b.store); {
	case errors.Is(err, fence.ErrDataLost):
		_ = b.stopServing(err)
	case err != nil:
		return nil, errors.Join(err, b.Close(ctx))
	}
	if cfg.Leadership != nil {
		if err := b.rememberNewest(ctx); err != nil {
			return nil, errors.Join(err, b.Close(ctx))
		}
		// The leader may not know the newest commit yet, see visibility.
		if err := retry.Sleep(ctx, fence.TakeoverWait); err != nil {
			return nil, errors.Join(err, b.Close(ctx))
		}
		if err := b.advance(b.Revision()); err != nil {
			return nil, errors.Join(err, b.Close(ctx))
		}
	}
	return b, nil
}

// OpenLeader returns a replica that leads until it is closed, and knows no other nodes. It fences
// the previous leader. When another node takes over, it stops serving.
func OpenLeader(ctx context.Context, store sqlstore.Store, cfg Config) (*Replica, error) {
	b, err := OpenFollower(ctx, store, cfg)
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

// prepare is OpenFollower without the goroutines of the replica itself.
func prepare(ctx context.Context, store sqlstore.Store, cfg Config) (*Replica, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Watch.Logger == nil {
		cfg.Watch.Logger = cfg.Logger
	}
	if err := repair.RefuseUnfinished(ctx, store); err != nil {
		return nil, err
	}
	b := &Replica{
		cfg: cfg, log: cfg.Logger, store: store, timeout: mvcc.NewTimeout(cfg.RequestTimeout),
		alarms: quota.NewAlarms(store), compacted: compact.NewMark(store),
	}
	b.seen = fence.NewSeen(b.Revision)
	b.marks = coalesce.New(cfg.RequestTimeout, b.readMark)
	b.probe = newProbe(b)
	b.history = history.New(store, b.Mark)
	b.noteFed()
	b.users = auth.NewUsers(store)
	b.authLoads = coalesce.New(cfg.RequestTimeout, b.users.Load)
	b.verifies = coalesce.New(cfg.RequestTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.verify(ctx, b.history)
	})
	if cfg.Leadership != nil {
		b.positions = coalesce.New(cfg.RequestTimeout, cfg.Leadership.Position)
	}
	var err error
	if b.identity, err = loadIdentity(ctx, store, cfg.Name); err != nil {
		return nil, err
	}
	b.space = quota.NewSpace(store, b.alarms, b.MemberID(), cfg.QuotaBytes, b.log)
	b.losses = fence.NewLossRecorder(store, b.log, b.seen, b.MemberID(), b.compare)
	if err := b.alarms.Load(ctx); err != nil {
		return nil, err
	}
	if err := b.space.Refresh(ctx); err != nil {
		return nil, fmt.Errorf("reading the size of the database: %w", err)
	}
	began := cfg.Trace.Now()
	rev, err := b.firstRevision(ctx)
	if err != nil {
		return nil, err
	}
	// Afterwards: what the node shows first must not be shown under older permissions.
	if _, err := b.users.Load(ctx); err != nil {
		return nil, err
	}
	cfg.Trace.Record(steptrace.Step{Kind: steptrace.Open, Began: began, Revision: rev})
	b.tso, b.published = tso.New(rev), tso.New(rev)
	b.view, err = keyspace.New(keyspace.Config{Budget: cfg.RecordCache, Revision: rev, PieceKeys: cfg.CountPieceKeys,
		Deltas: cfg.CountChanges})
	if err != nil {
		return nil, err
	}
	b.exporter = export.New(store, b)
	b.reader = read.New(b, store, b.view, cfg.maxSortedStream)
	b.metrics = newMetrics()
	b.metrics.observe(b)
	cfg.Watch.Registerer = b.metrics.own
	b.hub = watch.NewHub(b.history, rev, b.compacted.Revision(), cfg.Watch)
	if b.metrics.withdraw, err = metric.Publish(cfg.Registerer, b.metrics.own); err != nil {
		b.hub.Close()
		return nil, err
	}
	return b, nil
}

// firstRevision reads the revision of the table. An empty table is at revision 1.
func (b *Replica) firstRevision(ctx context.Context) (int64, error) {
	mark, err := b.compacted.Read(ctx)
	if err != nil {
		return 0, err
	}
	b.compacted.Raise(mark)
	cur, _, err := fence.LoadToken(ctx, b.store)
	switch {
	case errors.Is(err, sqlstore.ErrKeyNotFound):
		return 1, nil
	case err != nil:
		return 0, err
	}
	b.seen.Note(cur)
	return cur.Revision, nil
}

// Close ends all requests and watches, and stops all work. It hands over the leadership that
// Open took. A call of Lead must have returned. Close does not close the store.
func (b *Replica) Close(context.Context) error {
	b.cancel()
	b.workers.Wait()
	b.marks.Close(errClosed)
	b.probe.writes.Close(errClosed)
	b.authLoads.Close(errClosed)
	b.verifies.Close(errClosed)
	if b.positions != nil {
		b.positions.Close(errClosed)
	}
	b.stopped.CompareAndSwap(nil, new(fmt.Errorf("%w: shutting down", mvcc.ErrNotServing)))
	b.hub.Close()
	b.metrics.withdraw()
	return nil
}
