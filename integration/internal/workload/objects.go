package workload

import (
	"context"
	"errors"
	"fmt"
)

const (
	updatedOf = 10 // one of so many objects is updated
	updatedAt = 4  // the first of them; huge objects are among them
	deletedOf = 50 // one of so many objects is deleted
	deletedAt = 7  // the first of them
	// concurrentLists is about how often a namespace is listed during updates.
	concurrentLists = 1000

	oldReads    = 10_000 // reads of single objects at old revisions, at most
	objectLease = 86_400 // seconds: events outlive the run
)

// runObjects takes a cluster's objects through their life while watches follow
// it, and then reads all of it back: the present, the past, and the history.
func (r *runner) runObjects(ctx context.Context) (err error) {
	watching := r.begin("watch", 0)
	live, err := r.openWatches(ctx, watching)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, live.close()) }()
	live.watch(r.model.gen.prefix+"/", r.model.start+1, nil)
	for kind := range kinds {
		live.watch(r.model.gen.resourcePrefix(kind), r.model.start+1, nil)
	}
	r.end(watching)

	// Events share leases, as in kube-apiserver.
	r.loaded(ctx, "create", r.cfg.Objects, func(ctx context.Context, w *worker, _ int64) error {
		return w.create(ctx, objectLease)
	})
	created := r.model.revision.Load()
	r.updateObjects(ctx)
	updated := r.model.revision.Load()
	r.deleteObjects(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := r.checkComplete(); err != nil {
		return err
	}
	now := r.model.revision.Load()

	r.verify.settle()
	live.check(ctx, now)
	middle := created + (updated-created)/2
	r.readObjects(ctx, "read", []int64{0, created, middle}, r.model.start+1, now)
	if err := r.replay(ctx, "replay", 1, now); err != nil {
		return err
	}
	if r.cfg.NoCompact {
		return ctx.Err()
	}
	if err := r.compactObjects(ctx, middle, now, false); err != nil {
		return err
	}
	r.readObjects(ctx, "read compacted", []int64{middle, updated}, middle, now)
	if err := r.replay(ctx, "replay compacted", middle+1, now); err != nil {
		return err
	}
	if err := r.compactObjects(ctx, now, now, true); err != nil {
		return err
	}
	r.readObjects(ctx, "read newest", []int64{now}, now, now)
	return ctx.Err()
}

// updateObjects replaces a tenth of the objects several times, and lists a
// namespace now and then during the writes.
func (r *runner) updateObjects(ctx context.Context) {
	chosen := r.chosen(updatedOf, updatedAt)
	if len(chosen) == 0 || r.cfg.Updates == 0 {
		return
	}
	// An object that is being written is out of the queue.
	queue := make(chan *object, len(chosen))
	for _, o := range chosen {
		queue <- o
	}
	writes := len(chosen) * r.cfg.Updates
	listEvery := max(writes/concurrentLists, 2)
	steps := writes + (writes-1)/(listEvery-1)
	r.loaded(ctx, "update", steps, func(ctx context.Context, w *worker, i int64) error {
		if int(i)%listEvery == listEvery-1 {
			return w.listNamespace(ctx)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case o := <-queue:
			defer func() { queue <- o }()
			return w.change(ctx, o, (*worker).update)
		}
	})
}

// deleteObjects deletes some objects, and creates every other of these again.
func (r *runner) deleteObjects(ctx context.Context) {
	chosen := r.chosen(deletedOf, deletedAt)
	r.loaded(ctx, "delete", len(chosen), func(ctx context.Context, w *worker, i int64) error {
		if err := w.change(ctx, chosen[i], (*worker).remove); err != nil || i%2 == 0 {
			return err
		}
		o := chosen[i]
		o.claim()
		defer o.release()
		return w.put(ctx, o)
	})
}

// chosen returns each object whose number leaves the remainder at when divided by of.
func (r *runner) chosen(of, at int) []*object {
	var chosen []*object
	for _, o := range r.model.sorted(r.model.gen.prefix + "/") {
		if o.index%of == at {
			chosen = append(chosen, o)
		}
	}
	return chosen
}

// checkComplete fails if objects could not be created, or their state is unknown.
func (r *runner) checkComplete() error {
	var missing, lost int
	for _, o := range r.model.sorted(r.model.gen.prefix + "/") {
		_, _, _, isLost := o.settled(0)
		o.mu.Lock()
		never := len(o.history) == 0
		o.mu.Unlock()
		switch {
		case isLost:
			lost++
		case never:
			missing++
		}
	}
	if missing+lost > 0 {
		r.verify.fail("%d of %d objects could not be created, the state of %d is unknown", missing, r.cfg.Objects, lost)
	}
	if missing == r.cfg.Objects {
		return fmt.Errorf("create: %w", ErrNothingSucceeded)
	}
	return nil
}
