package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/coalesce"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/lease"
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
	r, err := prepare(ctx, store, cfg)
	if err != nil {
		return nil, err
	}
	working, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.workers.Go(func() { r.Space.Run(working) })
	r.workers.Go(func() { r.Losses.Run(working) })
	switch err := fence.CheckDataLoss(ctx, r.store); {
	case errors.Is(err, fence.ErrDataLost):
		_ = r.StopServing(err)
	case err != nil:
		return nil, errors.Join(err, r.Close(ctx))
	}
	if cfg.Leadership != nil {
		if err := r.Divergence.rememberFromTable(ctx, r.Revision()); err != nil {
			return nil, errors.Join(err, r.Close(ctx))
		}
		// The leader may not know the newest commit yet, see visibleLimit.
		if err := retry.Sleep(ctx, fence.TakeoverWait); err != nil {
			return nil, errors.Join(err, r.Close(ctx))
		}
		if err := r.makeVisible(r.Revision()); err != nil {
			return nil, errors.Join(err, r.Close(ctx))
		}
	}
	return r, nil
}

// OpenLeader returns a replica that leads until it is closed, and knows no other nodes. It fences
// the previous leader. When another node takes over, it stops serving.
func OpenLeader(ctx context.Context, store sqlstore.Store, cfg Config) (*Replica, error) {
	r, err := OpenFollower(ctx, store, cfg)
	if err != nil {
		return nil, err
	}
	l, err := r.takeOver(ctx)
	if err != nil {
		return nil, errors.Join(err, r.Close(ctx))
	}
	ready := make(chan struct{})
	working, cancel := context.WithCancel(context.Background())
	stopFollower := r.cancel
	r.cancel = func() { cancel(); stopFollower() }
	r.workers.Go(func() {
		if err := l.run(working, func(int64) { close(ready) }); err != nil {
			_ = r.StopServing(err)
		}
	})
	<-ready
	return r, nil
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
	r := &Replica{
		cfg: cfg, log: cfg.Logger, store: store, timeout: mvcc.NewTimeout(cfg.RequestTimeout),
		compacted: compact.NewMark(store),
	}
	r.seen = fence.NewSeen(r.Revision)
	r.marks = coalesce.New(cfg.RequestTimeout, r.readMark)
	r.history = history.New(store, r.Mark)
	r.recordFed()
	r.Auth = auth.NewStore(store, r, cfg.RequestTimeout, r.log)
	r.Attachments = lease.NewAttachments(store, r.Auth.Users, r.timeout)
	r.Divergence = newDivergence(r.history, r.seen, r.StopServing, cfg.RequestTimeout)
	if cfg.Leadership != nil {
		r.positions = coalesce.New(cfg.RequestTimeout, cfg.Leadership.Position)
	}
	var err error
	if r.identity, err = loadIdentity(ctx, store, cfg.Name); err != nil {
		return nil, err
	}
	r.Alarms = quota.NewAlarms(store, r, r.log)
	r.Space = quota.NewSpace(store, r.Attachments, r.Alarms, r.MemberID(), cfg.QuotaBytes, r.log)
	r.Probe = quota.NewProbe(store, r.Space, r.Stopped, cfg.RequestTimeout)
	r.Losses = fence.NewLossRecorder(store, r.log, r.seen, r.MemberID(), r.Divergence.compareAll)
	if err := r.Alarms.Load(ctx); err != nil {
		return nil, err
	}
	if err := r.Space.Refresh(ctx); err != nil {
		return nil, fmt.Errorf("reading the size of the database: %w", err)
	}
	began := cfg.Trace.Now()
	rev, err := r.firstRevision(ctx)
	if err != nil {
		return nil, err
	}
	// Afterwards: the first revision must not be visible under older permissions.
	if _, err := r.Auth.Load(ctx); err != nil {
		return nil, err
	}
	cfg.Trace.Record(steptrace.Step{Kind: steptrace.Open, Began: began, Revision: rev})
	r.tso = tso.New(rev)
	r.view, err = keyspace.New(keyspace.Config{Budget: cfg.RecordCache, Revision: rev, SpanKeys: cfg.CountSpanKeys,
		CountChanges: cfg.CountChanges})
	if err != nil {
		return nil, err
	}
	r.Exporter = export.New(store, r)
	r.Reader = read.New(r, store, r.view, r.timeout, cfg.maxSortedStream)
	r.metrics = newMetrics()
	r.metrics.observe(r)
	cfg.Watch.Registerer = r.metrics.own
	r.Hub = watch.NewHub(r.history.Cached(), rev, r.compacted.Revision(), cfg.Watch)
	if r.metrics.withdraw, err = metric.Publish(cfg.Registerer, r.metrics.own); err != nil {
		r.Hub.Close()
		return nil, err
	}
	return r, nil
}

// firstRevision reads the revision of the table. An empty table is at revision 1.
func (r *Replica) firstRevision(ctx context.Context) (int64, error) {
	mark, err := r.compacted.Read(ctx)
	if err != nil {
		return 0, err
	}
	r.compacted.Raise(mark)
	cur, _, err := fence.LoadToken(ctx, r.store)
	switch {
	case errors.Is(err, sqlstore.ErrKeyNotFound):
		return 1, nil
	case err != nil:
		return 0, err
	}
	r.seen.Observe(cur)
	return cur.Revision, nil
}

// Close ends all requests and watches, and stops all work. It hands over the leadership that
// OpenLeader took. A call of Lead must have returned. Close does not close the store.
func (r *Replica) Close(context.Context) error {
	r.cancel()
	r.workers.Wait()
	r.marks.Close(errClosed)
	r.Probe.Close(errClosed)
	r.Auth.Close(errClosed)
	r.Divergence.comparisons.Close(errClosed)
	if r.positions != nil {
		r.positions.Close(errClosed)
	}
	r.stopped.CompareAndSwap(nil, new(fmt.Errorf("%w: shutting down", mvcc.ErrNotServing)))
	r.Hub.Close()
	r.metrics.withdraw()
	return nil
}
