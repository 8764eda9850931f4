package workload

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// grant asks for a lease. A grant whose answer was lost leaves a lease without keys, which expires.
func (w *worker) grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	var resp *clientv3.LeaseGrantResponse
	err := w.request(ctx, "grant", func(ctx context.Context, _ *sample) (err error) {
		resp, err = w.client.Grant(ctx, ttl)
		return err
	})
	if err != nil {
		return nil, err
	}
	w.r.verify.answers.Add(1)
	if resp.TTL < ttl || resp.ID == 0 {
		w.r.verify.fail("grant: lease %x with TTL %d, want at least %d", resp.ID, resp.TTL, ttl)
	}
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.r.leases = append(w.r.leases, resp.ID)
	return resp, nil
}

// grantNext grants a lease that no key holds.
func (w *worker) grantNext(ctx context.Context) error {
	_, err := w.grant(ctx, w.r.cfg.LeaseTTL)
	return err
}

// runKeepalive renews leases, of which each client has one.
func (r *runner) runKeepalive(ctx context.Context) error {
	r.loaded(ctx, "load", r.cfg.Clients, func(ctx context.Context, w *worker, _ int64) error { return w.grantNext(ctx) })
	r.mu.Lock()
	leases := slices.Clone(r.leases)
	r.mu.Unlock()
	if len(leases) == 0 {
		return fmt.Errorf("load: %w", ErrNothingSucceeded)
	}
	r.measured(ctx, "keepalive", 0, func(ctx context.Context, w *worker, i int64) error {
		return w.keepalive(ctx, leases[i%int64(len(leases))])
	})
	return nil
}

// keepalive keeps a lease alive once.
func (w *worker) keepalive(ctx context.Context, id clientv3.LeaseID) error {
	return w.request(ctx, "keepalive", func(ctx context.Context, _ *sample) error {
		resp, err := w.client.KeepAliveOnce(ctx, id)
		if err != nil {
			return err
		}
		w.r.verify.answers.Add(1)
		if want := w.r.cfg.LeaseTTL; resp.ID != id || resp.TTL < want {
			w.r.verify.fail("keepalive %x: lease %x with TTL %d, want at least %d", id, resp.ID, resp.TTL, want)
		}
		return nil
	})
}
