package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Errors a run ends with, in addition to those of its context and of connecting.
var (
	// ErrVerification: an answer or event was not what the model says.
	ErrVerification = errors.New("verification failed")
	// ErrNothingSucceeded: every request failed.
	ErrNothingSucceeded = errors.New("no request succeeded")
	// ErrGone: requests succeeded, but for longer than Config.RetryFor none did.
	ErrGone = errors.New("requests have stopped succeeding")
	// ErrPrefixInUse: there are keys below the prefix already.
	ErrPrefixInUse = errors.New("the prefix holds keys already")
)

// cleanUpTime bounds the cleaning up after a run that was interrupted.
const cleanUpTime = time.Minute

// runner is one run. Its fields are set before workers start, but for those
// that mu guards.
type runner struct {
	cfg     Config
	clients []*clientv3.Client
	model   *model
	verify  *verifier
	pace    *pacer // nil: no set rate
	abort   context.CancelCauseFunc
	alive   atomic.Int64 // when a request succeeded last, in nanoseconds

	mu     sync.Mutex
	phases []*phase
	leases []clientv3.LeaseID // to be revoked in the end
}

// Run executes the workload cfg names. The report is not nil once the endpoint
// answered, even if there is an error; the error wraps ErrVerification,
// ErrNothingSucceeded, ErrGone, or what kept the run from finishing. Requests that fail
// for a temporary reason are counted, and do not make the run fail.
func Run(ctx context.Context, cfg Config) (rep *Report, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Conns = min(cfg.Conns, cfg.Clients)
	if cfg.Total == 0 && cfg.Duration == 0 {
		cfg.Total = 10_000
	}
	if cfg.Prefix == "" {
		cfg.Prefix = uniquePrefix()
	}
	m := newModel(&generator{seed: cfg.Seed, prefix: cfg.Prefix, size: cfg.ValueSize}, cfg.NoVersions)
	if cfg.After != nil {
		m = cfg.After.model
		cfg.Prefix = m.gen.prefix
	}
	clients, err := connect(ctx, &cfg, cfg.Conns)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll(clients)) }()
	r := &runner{cfg: cfg, clients: clients, model: m, verify: &verifier{model: m}}
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}

	ctx, r.abort = context.WithCancelCause(ctx)
	defer r.abort(nil)
	began := time.Now()
	r.alive.Store(began.UnixNano())
	err = r.execute(ctx)
	if ctx.Err() != nil { // whatever else ended did so because of that
		err = context.Cause(ctx)
	}
	if !cfg.Keep {
		err = errors.Join(err, r.cleanUp(ctx, cfg.Prefix))
	}
	rep = r.report(began)
	if ok, failed := rep.Requests(); ok == 0 && failed > 0 {
		err = errors.Join(err, ErrNothingSucceeded)
	}
	if n := rep.Verification.Failed; n > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d wrong, the first: %s", ErrVerification, n, rep.Verification.Failures[0]))
	}
	return rep, err
}

// execute runs the workload and the checks that follow every workload.
func (r *runner) execute(ctx context.Context) error {
	stop := r.showProgress()
	defer stop()
	if err := findWorkload(r.cfg.Workload).run(r, ctx); err != nil {
		return err
	}
	return r.finish(ctx)
}

// finish checks the answers that were kept for later, and what the store holds now.
func (r *runner) finish(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.verify.settle()
	if r.cfg.NoFinalList {
		return nil
	}
	p := r.begin("check", 0)
	defer r.end(p)
	w := r.worker(p, 0)
	l, err := w.list(ctx, r.model.gen.prefix+"/")
	if err != nil {
		return fmt.Errorf("final list: %w", err)
	}
	r.verify.listing(l, r.model.sorted(l.prefix))
	r.checkRevisions(l.rev)
	return nil
}

// checkRevisions checks that no two writes share a revision and, if the store
// has no other writer, that revisions up to rev have no gaps.
func (r *runner) checkRevisions(rev int64) {
	revs, lost := r.model.revisions()
	expect := r.model.start + 1
	for i, got := range revs {
		if got <= r.model.start {
			continue // of an earlier run
		}
		shared := i > 0 && got == revs[i-1]
		// a batch changes many keys in one
		if shared && r.cfg.Workload != "load" {
			r.verify.fail("revision %d was given to two writes", got)
		}
		if !shared && r.cfg.Exclusive && lost == 0 && got != expect {
			r.verify.fail("revision %d follows %d", got, expect-1)
			return
		}
		expect = got + 1
	}
	if r.cfg.Exclusive && lost == 0 && rev != expect-1 {
		r.verify.fail("the store is at revision %d, the last write has %d", rev, expect-1)
	}
	r.verify.answers.Add(1)
}

// cleanUp deletes everything below prefix, a page at a time so that no
// transaction gets large, and revokes the leases.
func (r *runner) cleanUp(ctx context.Context, prefix string) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
		defer cancel()
	}
	c, end := r.clients[0], clientv3.GetPrefixRangeEnd(prefix+"/")
	for more := true; more; {
		err := r.unmeasured(ctx, func(ctx context.Context) error {
			page, err := c.Get(ctx, prefix+"/", clientv3.WithRange(end), clientv3.WithLimit(int64(r.cfg.PageSize)),
				clientv3.WithKeysOnly())
			if err != nil {
				return err
			}
			if more = page.More; len(page.Kvs) == 0 {
				return nil
			}
			_, err = c.Delete(ctx, prefix+"/", clientv3.WithRange(string(page.Kvs[len(page.Kvs)-1].Key)+"\x00"))
			return err
		})
		if err != nil {
			return fmt.Errorf("clean up %s/: %w", prefix, err)
		}
	}
	r.mu.Lock()
	leases := r.leases
	r.mu.Unlock()
	for _, id := range leases {
		err := r.unmeasured(ctx, func(ctx context.Context) error {
			_, err := c.Revoke(ctx, id)
			return err
		})
		if err != nil && !isLeaseNotFound(err) {
			return fmt.Errorf("clean up lease %x: %w", id, err)
		}
	}
	return nil
}

func (r *runner) report(began time.Time) *Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := &Report{
		Workload: r.cfg.Workload, Endpoints: r.cfg.Endpoints, Clients: r.cfg.Clients, Conns: r.cfg.Conns,
		Seed: r.model.gen.seed, Prefix: r.cfg.Prefix, Started: began, Seconds: time.Since(began).Seconds(),
		Phases: []PhaseReport{}, Verification: r.verify.report(), model: r.model,
	}
	for _, p := range r.phases {
		rep.Phases = append(rep.Phases, p.report())
	}
	return rep
}

func isLeaseNotFound(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }
