package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
)

// errAbsent: an object that should exist does not, because creating it failed.
var errAbsent = errors.New("object was not created")

// createNext creates the next object.
func (w *worker) createNext(ctx context.Context) error {
	o := w.r.model.add(-1)
	o.claim()
	defer o.release()
	return w.put(ctx, o)
}

// load creates the objects a workload needs before it starts, unless it adopted
// some.
func (r *runner) load(ctx context.Context, n int) error {
	if r.cfg.Adopt {
		return nil
	}
	r.loaded(ctx, "load", n, func(ctx context.Context, w *worker, _ int64) error { return w.createNext(ctx) })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var live int
	for _, o := range r.model.sorted(r.model.gen.prefix) {
		if _, ok := o.latest(); ok {
			live++
		}
	}
	if live == 0 {
		return fmt.Errorf("load: %w: none of %d objects could be created", ErrNothingSucceeded, n)
	}
	return nil
}

// claimLive claims a random object that exists; nil if it finds none.
func (w *worker) claimLive() *object {
	n := w.r.model.len()
	for range 100 {
		o := w.r.model.object(w.rand.IntN(n))
		if !o.claim() {
			continue
		}
		if _, live := o.latest(); live {
			return o
		}
		o.release()
	}
	return nil
}

// updateRandom replaces a random object; now and then it first tries so with an
// outdated revision, as a controller with a stale cache does.
func (w *worker) updateRandom(ctx context.Context) error {
	o := w.claimLive()
	if o == nil {
		return errAbsent
	}
	defer o.release()
	return w.update(ctx, o)
}

func (w *worker) update(ctx context.Context, o *object) error {
	if w.rand.IntN(50) == 0 {
		if err := w.stalePut(ctx, o); err != nil {
			return err
		}
	}
	return w.put(ctx, o)
}

func (w *worker) getRandom(ctx context.Context) error {
	return w.get(ctx, w.r.model.object(w.rand.IntN(w.r.model.len())), 0)
}

func (w *worker) removeRandom(ctx context.Context) error {
	o := w.claimLive()
	if o == nil {
		return errAbsent
	}
	defer o.release()
	return w.remove(ctx, o)
}

// listNamespace lists the namespace of a random object.
func (w *worker) listNamespace(ctx context.Context) error {
	key := w.r.model.object(w.rand.IntN(w.r.model.len())).key
	l, err := w.list(ctx, key[:strings.LastIndexByte(key, '/')+1], 0)
	if err == nil {
		w.r.verify.later(l)
	}
	return err
}

func (r *runner) runCreate(ctx context.Context) error {
	r.measured(ctx, "create", 0, func(ctx context.Context, w *worker, _ int64) error { return w.createNext(ctx) })
	return nil
}

func (r *runner) runUpdate(ctx context.Context) error {
	if err := r.load(ctx, r.cfg.Keys); err != nil {
		return err
	}
	r.measured(ctx, "update", 0, func(ctx context.Context, w *worker, _ int64) error { return w.updateRandom(ctx) })
	return nil
}

func (r *runner) runPut(ctx context.Context) error {
	if err := r.load(ctx, r.cfg.Keys); err != nil {
		return err
	}
	r.measured(ctx, "put", 0, func(ctx context.Context, w *worker, _ int64) error {
		o := w.claimLive()
		if o == nil {
			return errAbsent
		}
		defer o.release()
		return w.overwrite(ctx, o)
	})
	return nil
}

func (r *runner) runGet(ctx context.Context) error {
	if err := r.load(ctx, r.cfg.Keys); err != nil {
		return err
	}
	r.measured(ctx, "get", 0, func(ctx context.Context, w *worker, _ int64) error { return w.getRandom(ctx) })
	return nil
}

// runList lists all objects page by page, again and again; a step is a whole list.
func (r *runner) runList(ctx context.Context) error {
	return r.readAll(ctx, "list", func(ctx context.Context, w *worker, prefix string) (*listing, error) {
		return w.list(ctx, prefix, 0)
	})
}

func (r *runner) runListAll(ctx context.Context) error {
	return r.readAll(ctx, "list all", func(ctx context.Context, w *worker, prefix string) (*listing, error) {
		return w.listAll(ctx, prefix)
	})
}

func (r *runner) readAll(ctx context.Context, name string, read func(context.Context, *worker, string) (*listing, error)) error {
	if err := r.load(ctx, r.cfg.Keys); err != nil {
		return err
	}
	prefix := r.model.gen.prefix + "/"
	objects := r.model.sorted(prefix)
	r.measured(ctx, name, 0, func(ctx context.Context, w *worker, _ int64) error {
		l, err := read(ctx, w, prefix)
		if err == nil {
			r.verify.listing(l, objects)
		}
		return err
	})
	return nil
}

func (r *runner) runCount(ctx context.Context) error {
	if err := r.load(ctx, r.cfg.Keys); err != nil {
		return err
	}
	prefix := r.model.gen.prefix + "/"
	// Nothing is written meanwhile, so all answers are the same.
	want, known := live(r.model.sorted(prefix), math.MaxInt64)
	r.measured(ctx, "count", 0, func(ctx context.Context, w *worker, _ int64) error {
		l, err := w.countAll(ctx, prefix, 0)
		if err == nil {
			r.verify.counted(prefix, l.rev, l.count, want, known)
		}
		return err
	})
	return nil
}

func (r *runner) runDelete(ctx context.Context) error {
	n := r.cfg.Keys
	if r.cfg.Total > 0 {
		n = int(r.cfg.Total)
	}
	if err := r.load(ctx, n); err != nil {
		return err
	}
	if r.cfg.Adopt {
		n = r.model.len()
	}
	r.measured(ctx, "delete", int64(n), func(ctx context.Context, w *worker, i int64) error {
		return w.change(ctx, r.model.object(int(i)), (*worker).remove)
	})
	return nil
}

func (r *runner) runMixed(ctx context.Context) error {
	if err := r.load(ctx, r.cfg.Keys); err != nil {
		return err
	}
	ops := []struct {
		share int
		step  func(*worker, context.Context) error
	}{
		{r.cfg.Mix.Get, (*worker).getRandom},
		{r.cfg.Mix.List, (*worker).listNamespace},
		{r.cfg.Mix.Create, (*worker).createNext},
		{r.cfg.Mix.Update, (*worker).updateRandom},
		{r.cfg.Mix.Delete, (*worker).removeRandom},
	}
	r.measured(ctx, "mixed", 0, func(ctx context.Context, w *worker, _ int64) error {
		n := w.rand.IntN(r.cfg.Mix.sum())
		for _, op := range ops {
			if n -= op.share; n < 0 {
				return op.step(w, ctx)
			}
		}
		return nil
	})
	return nil
}
