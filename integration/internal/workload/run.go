package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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
	leases []clientv3.LeaseID // granted
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
	r.alive.Store(time.Now().UnixNano())
	if err = findWorkload(r.cfg.Workload).run(r, ctx); err == nil {
		err = r.finish(ctx)
	}
	if ctx.Err() != nil { // whatever else ended did so because of that
		err = context.Cause(ctx)
	}
	rep = r.report()
	if ok, failed := rep.Requests(); ok == 0 && failed > 0 {
		err = errors.Join(err, ErrNothingSucceeded)
	}
	if n := rep.Verification.Failed; n > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d wrong, the first: %s", ErrVerification, n, rep.Verification.Failures[0]))
	}
	return rep, err
}

// finish checks the answers that were kept for later, and what the store holds now.
func (r *runner) finish(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.verify.settle()
	p := r.begin("check", 0)
	defer r.end(p)
	w := r.worker(p, 0)
	l, err := w.list(ctx, r.model.gen.prefix+"/")
	if err != nil {
		return fmt.Errorf("final list: %w", err)
	}
	r.verify.listing(l, r.model.sorted(l.prefix))
	r.checkRevisions()
	return nil
}

// checkRevisions checks that no two writes share a revision.
func (r *runner) checkRevisions() {
	revs, _ := r.model.revisions()
	for i := 1; i < len(revs); i++ {
		if revs[i] == revs[i-1] {
			r.verify.fail("revision %d was given to two writes", revs[i])
		}
	}
	r.verify.answers.Add(1)
}

func (r *runner) report() *Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := &Report{Verification: r.verify.report(), model: r.model}
	for _, p := range r.phases {
		rep.Phases = append(rep.Phases, p.report())
	}
	return rep
}
