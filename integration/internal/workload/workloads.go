package workload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Workloads lists the workloads in the order to show them.
var Workloads = []Workload{
	{"create", "create objects that do not exist", measuring("create", (*worker).createNext)},
	{"update", "replace objects if their revision is still the known one",
		onObjects("update", changeRandom((*worker).update))},
	{"put", "replace objects whatever their revision is, which kube-apiserver never does",
		onObjects("put", changeRandom((*worker).overwrite))},
	{"get", "read single objects", onObjects("get", (*worker).getRandom)},
	{"count", "count all objects", (*runner).runCount},
	{"list", "read all objects page by page at one revision", readingAll("list", (*worker).list)},
	{"list-all", "read all objects in one answer", readingAll("list all", (*worker).listAll)},
	{"delete", "delete objects if their revision is still the known one", (*runner).runDelete},
	{"mixed", "gets, lists, creates, updates and deletes in a ratio", onObjects("mixed", (*worker).mixed)},
	{"watch-latency", "time from the sending of a write to its event at each of many watchers",
		watching("update", changeRandom((*worker).update))},
	{"churn", "create, update and delete objects, all of whose events each watcher must get once",
		watching("churn", (*worker).churnRandom)},
	{"grant", "grant leases", measuring("grant", (*worker).grantNext)},
	{"keepalive", "renew leases, of which each client has one", (*runner).runKeepalive},
}

// Workload is one kind of load.
type Workload struct {
	Name, About string
	run         func(*runner, context.Context) error
}

// findWorkload returns the workload of that name, nil if there is none.
func findWorkload(name string) *Workload {
	i := slices.IndexFunc(Workloads, func(w Workload) bool { return w.Name == name })
	if i < 0 {
		return nil
	}
	return &Workloads[i]
}

// step is one operation of a worker.
type step func(*worker, context.Context) error

// measuring does a step again and again, as the configuration says.
func measuring(name string, do step) func(*runner, context.Context) error {
	return func(r *runner, ctx context.Context) error {
		r.measured(ctx, name, 0, func(ctx context.Context, w *worker, _ int64) error { return do(w, ctx) })
		return nil
	}
}

// onObjects is measuring of what needs objects.
func onObjects(name string, do step) func(*runner, context.Context) error {
	return func(r *runner, ctx context.Context) error {
		if err := r.load(ctx, r.cfg.Keys); err != nil {
			return err
		}
		return measuring(name, do)(r, ctx)
	}
}

// readingAll reads all objects again and again; a step is the whole of them.
func readingAll(name string, read func(w *worker, ctx context.Context,
	prefix string) (*listing, error)) func(*runner, context.Context) error {
	return func(r *runner, ctx context.Context) error {
		if err := r.load(ctx, r.cfg.Keys); err != nil {
			return err
		}
		prefix := r.model.gen.prefix + "/"
		objects := r.model.sorted(prefix)
		return measuring(name, func(w *worker, ctx context.Context) error {
			l, err := read(w, ctx, prefix)
			if err == nil {
				r.verify.listing(l, objects)
			}
			return err
		})(r, ctx)
	}
}

// load creates the objects a workload needs before it starts, unless an earlier run left some.
func (r *runner) load(ctx context.Context, n int) error {
	if r.cfg.After == nil {
		r.loaded(ctx, "load", n, func(ctx context.Context, w *worker, _ int64) error { return w.createNext(ctx) })
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for i := range r.model.len() {
		if _, live := r.model.object(i).latest(); live {
			return nil
		}
	}
	return fmt.Errorf("load: %w: no object exists", ErrNothingSucceeded)
}

// errAbsent: an object that should exist does not, because creating it failed.
var errAbsent = errors.New("object was not created")

// createNext creates the next object.
func (w *worker) createNext(ctx context.Context) error {
	o := w.r.model.add(-1)
	o.claim()
	defer o.release()
	return w.put(ctx, o)
}

// change has do write o, if o exists.
func (w *worker) change(ctx context.Context, o *object, do func(*worker, context.Context, *object) error) error {
	if !o.claim() {
		return errAbsent
	}
	defer o.release()
	if _, live := o.latest(); !live {
		return errAbsent
	}
	return do(w, ctx, o)
}

// changeRandom is a step in which do writes a random object that exists and that no other worker writes.
func changeRandom(do func(*worker, context.Context, *object) error) step {
	return func(w *worker, ctx context.Context) error {
		for range 100 {
			if err := w.change(ctx, w.random(), do); !errors.Is(err, errAbsent) {
				return err
			}
		}
		return errAbsent
	}
}

func (w *worker) random() *object { return w.r.model.object(w.rand.IntN(w.r.model.len())) }

// churnRandom deletes or updates a random object that no other worker writes, or creates it if it
// does not exist: of five writes one creates, one deletes.
func (w *worker) churnRandom(ctx context.Context) error {
	for range 100 {
		o := w.random()
		if !o.claim() {
			continue
		}
		defer o.release()
		if _, live := o.latest(); !live {
			return w.put(ctx, o)
		}
		if w.rand.IntN(4) == 0 {
			return w.remove(ctx, o)
		}
		return w.update(ctx, o)
	}
	return errAbsent
}

func (w *worker) getRandom(ctx context.Context) error { return w.get(ctx, w.random()) }

// update replaces o, which exists and which the caller claimed; now and then it first tries so
// with an outdated revision, as a controller with a stale cache does.
func (w *worker) update(ctx context.Context, o *object) error {
	if w.rand.IntN(50) == 0 {
		if err := w.stalePut(ctx, o); err != nil {
			return err
		}
	}
	return w.put(ctx, o)
}

// listNamespace lists the namespace of a random object.
func (w *worker) listNamespace(ctx context.Context) error {
	key := w.random().key
	l, err := w.list(ctx, key[:strings.LastIndexByte(key, '/')+1])
	if err == nil {
		w.r.verify.later(l)
	}
	return err
}

// mixed does one operation, chosen by the configured ratio.
func (w *worker) mixed(ctx context.Context) error {
	mix := w.r.cfg.Mix
	return draw(mix, w.rand.IntN(sum(mix)))(w, ctx)
}

func (r *runner) runCount(ctx context.Context) error {
	if err := r.load(ctx, r.cfg.Keys); err != nil {
		return err
	}
	prefix := r.model.gen.prefix + "/"
	// No write runs at the same time, so all answers are the same.
	want, known := live(r.model.sorted(prefix), math.MaxInt64)
	r.measured(ctx, "count", 0, func(ctx context.Context, w *worker, _ int64) error {
		l, err := w.countAll(ctx, prefix)
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
	if r.cfg.After != nil {
		n = r.model.len()
	}
	r.measured(ctx, "delete", int64(n), func(ctx context.Context, w *worker, i int64) error {
		return w.change(ctx, r.model.object(int(i)), (*worker).remove)
	})
	return nil
}
