package workload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// readObjects lists and counts each kind at each of the revisions revs (0: now), and reads single
// objects at revisions in [oldest, now]. Reads of a future revision must be refused. No write may
// be in progress.
func (r *runner) readObjects(ctx context.Context, name string, revs []int64, oldest, now int64) {
	var steps []func(context.Context, *worker) error
	for kind := range kinds {
		prefix := r.model.gen.resourcePrefix(kind)
		objects := r.model.sorted(prefix)
		compare := func(l *listing, err error) error {
			if err == nil && l != nil {
				r.verify.listing(l, objects)
			}
			return err
		}
		for _, rev := range revs {
			steps = append(steps,
				func(ctx context.Context, w *worker) error { return compare(w.list(ctx, prefix, rev)) },
				func(ctx context.Context, w *worker) error { return w.count(ctx, prefix, rev) })
		}
		steps = append(steps,
			func(ctx context.Context, w *worker) error {
				return compare(w.list(ctx, prefix, 0, clientv3.WithKeysOnly()))
			},
			func(ctx context.Context, w *worker) error { return compare(w.stream(ctx, prefix)) },
			func(ctx context.Context, w *worker) error {
				return w.refused(ctx, errFuture, prefix, clientv3.WithPrefix(), clientv3.WithRev(math.MaxInt64/2))
			})
	}
	lists := int64(len(steps))
	gets := min(oldReads, r.cfg.Objects)
	r.loaded(ctx, name, len(steps)+gets, func(ctx context.Context, w *worker, i int64) error {
		if i < lists {
			return steps[i](ctx, w)
		}
		o := r.model.object(w.rand.IntN(r.model.len()))
		return w.get(ctx, o, oldest+w.rand.Int64N(now-oldest+1))
	})
}

// count counts the keys below prefix and checks the answer. No write may be in progress.
func (w *worker) count(ctx context.Context, prefix string, rev int64) error {
	l, err := w.countAll(ctx, prefix, rev)
	if err == nil {
		want, known := live(w.r.model.sorted(prefix), l.rev)
		w.r.verify.counted(prefix, l.rev, l.count, want, known)
	}
	return err
}

// countAll counts the keys below prefix at rev (0: now), as kube-apiserver does
// for its metrics.
func (w *worker) countAll(ctx context.Context, prefix string, rev int64) (*listing, error) {
	resp, err := w.read(ctx, "count", prefix, clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithRev(rev))
	if err != nil {
		return nil, err
	}
	if len(resp.Kvs) > 0 {
		w.r.verify.fail("count %s: answered with %d keys", prefix, len(resp.Kvs))
	}
	if rev == 0 {
		rev = resp.Header.Revision
	}
	return &listing{prefix: prefix, rev: rev, count: resp.Count}, nil
}

// replay watches the history from revision from up to revision until.
func (r *runner) replay(ctx context.Context, name string, from, until int64) (err error) {
	p := r.begin(name, 0)
	defer r.end(p)
	w := r.worker(p, 0)
	if from <= r.model.start {
		err := r.unmeasured(ctx, func(ctx context.Context) error {
			_, err := w.client.Get(ctx, r.model.gen.prefix, clientv3.WithRev(from))
			return err
		})
		switch {
		case errors.Is(err, errCompacted):
			r.note("revision %d was compacted before the run: replayed from %d", from, r.model.start+1)
			from = r.model.start + 1
		case err != nil:
			return fmt.Errorf("read revision %d: %w", from, err)
		}
	}
	ws, err := r.openWatches(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ws.close()) }()
	began := time.Now()
	ws.watch(r.model.gen.prefix+"/", from, nil)
	for kind := range kinds {
		ws.watch(r.model.gen.resourcePrefix(kind), from, nil)
	}
	for _, watch := range ws.all {
		if err := watch.wait(ctx, func() bool { return watch.complete(until) }); err != nil {
			break // the check below says so
		}
		s := watch.volume()
		s.latency = time.Since(began)
		p.record("watch", s)
	}
	ws.check(ctx, until)
	return ctx.Err()
}

// compactObjects compacts at rev, and checks that older revisions are refused. The reads
// that follow check what is left.
func (r *runner) compactObjects(ctx context.Context, rev, now int64, physical bool) error {
	p := r.begin("compact", 0)
	defer r.end(p)
	w := r.worker(p, 0)
	if err := w.compact(ctx, rev, physical); err != nil {
		return fmt.Errorf("compact at %d: %w", rev, err)
	}
	for _, c := range []struct {
		rev  int64
		want error
	}{{rev, errCompacted}, {rev - 1, errCompacted}, {math.MaxInt64 / 2, errFuture}} {
		err := w.fails(ctx, fmt.Sprintf("compact at %d after %d, now %d", c.rev, rev, now), c.want,
			func(ctx context.Context) error {
				_, err := w.client.Compact(ctx, c.rev)
				return err
			})
		if err != nil {
			return err
		}
	}
	for kind := range kinds {
		prefix := r.model.gen.resourcePrefix(kind)
		for _, old := range []int64{1, rev - 1} {
			err := errors.Join(
				w.refused(ctx, errCompacted, prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithRev(old)),
				w.refused(ctx, errCompacted, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithRev(old)),
				w.refused(ctx, errCompacted, r.model.object(0).key, clientv3.WithRev(old)))
			if err != nil {
				return err
			}
			r.compactedWatch(ctx, prefix, old, rev)
		}
	}
	return ctx.Err()
}

func (w *worker) compact(ctx context.Context, rev int64, physical bool) error {
	op, opts := "compact", []clientv3.CompactOption(nil)
	if physical {
		op, opts = "compact physically", append(opts, clientv3.WithCompactPhysical())
	}
	uncertain, err := w.r.repeat(ctx, func(bool) error {
		return w.measureFor(ctx, w.r.cfg.RetryFor, op, func(ctx context.Context, _ *sample) error {
			_, err := w.client.Compact(ctx, rev, opts...)
			return err
		})
	})
	if uncertain && errors.Is(err, errCompacted) {
		return nil
	}
	return err
}
