package workload

import (
	"context"
	"errors"
	"time"
)

// watching is watched as a workload.
func watching(name string, write step) func(*runner, context.Context) error {
	return func(r *runner, ctx context.Context) error { return r.watched(ctx, name, write) }
}

// watched measures write, and the time from the sending of a write to the arrival of its event
// at every watcher, unless it is a deletion.
func (r *runner) watched(ctx context.Context, name string, write step) (err error) {
	if err := r.load(ctx, r.cfg.Keys); err != nil {
		return err
	}
	from := r.model.revision.Load() + 1
	// Watchers spread over as many connections as the writers have.
	var sets []*watches
	defer func() {
		for _, ws := range sets {
			err = errors.Join(err, ws.close())
		}
	}()
	p := &phase{name: "watch", started: time.Now()}
	for range min(r.cfg.Conns, r.cfg.Watchers) {
		ws, err := r.openWatches(ctx, p)
		if err != nil {
			return err
		}
		sets = append(sets, ws)
	}
	seen := func(e *event, value []byte, at time.Time) {
		n, ok := writeOf(value)
		e.object.mu.Lock()
		defer e.object.mu.Unlock()
		if ok && n < len(e.object.sendings) {
			sent := time.Unix(0, e.object.sendings[n])
			p.record("event", sample{latency: at.Sub(sent), keys: 1})
		}
	}
	for i := range r.cfg.Watchers {
		set := sets[i%len(sets)]
		if r.cfg.WatchEach {
			set.watchOne(r.model.object(i%r.model.len()), from, seen)
		} else {
			set.watch(r.model.gen.prefix+"/", from, seen)
		}
	}
	for _, ws := range sets {
		if err := ws.awaitCreated(ctx); err != nil {
			return err
		}
	}
	r.measured(ctx, name, 0, func(ctx context.Context, w *worker, _ int64) error { return write(w, ctx) })
	for _, ws := range sets {
		ws.check(ctx, r.model.revision.Load())
	}
	// Events are reported next to the writes of the same time.
	r.mu.Lock()
	defer r.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.elapsed = r.phases[len(r.phases)-1].elapsed
	r.phases = append(r.phases, p)
	return nil
}
