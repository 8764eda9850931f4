package simulation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/integration/internal/history"
)

// lease is one lease that its client lets expire, or revokes. Times count from the start of
// the world.
type lease struct {
	id, ttl  int64
	revision int64         // of the store when it was granted
	promised time.Duration // when the newest request that was acknowledged was sent
	last     time.Duration // when the newest request that may have renewed it was answered
	revoked  time.Duration // when its client asked to revoke it; 0: never
	gone     time.Duration // when an answer said first that it does not exist; 0: never
	open     bool          // a request to revoke it may still be executed
}

// fastest is how much faster than simulated time the clock of a machine can run.
const fastest = 1.05

// end returns the time before which the lease must not end.
func (l *lease) end() time.Duration {
	end := l.promised + time.Duration(float64(l.ttl)*float64(time.Second)/fastest)
	if l.revoked > 0 {
		end = min(end, l.revoked)
	}
	return end
}

// latest returns the time after which the lease must have ended, if its leader never changed.
func (l *lease) latest() time.Duration {
	return l.last + time.Duration(float64(l.ttl)*float64(time.Second)*fastest)
}

// longestTTL is the longest TTL of a lease.
func (w Workload) longestTTL() time.Duration { return time.Duration(max(w.TTL, 3)) * time.Second }

// hold grants leases, puts keys with them, renews them for a while, and then lets them
// expire or revokes them.
func (c *client) hold() {
	defer c.disconnect()
	var id int64
	again := false // at once, with the same id
	for n := int64(1); !c.over(); n++ {
		// An id that has ended can be granted again.
		if id == 0 || !again && !c.oneIn(3) {
			id = int64(hash(c.process.name)>>32)<<16 + n
		}
		again = false
		l := &lease{id: id, ttl: 2 + c.rnd.Int64N(int64(c.w.plan.Workload.longestTTL()/time.Second)-1)}
		if c.w.plan.Workload.Half {
			l.ttl = int64(c.w.plan.Workload.longestTTL() / time.Second)
		}
		if !c.grant(l) {
			id = 0
			continue
		}
		c.attach(l)
		for c.w.plan.Workload.Half && l.gone == 0 && !c.over() && !c.oneIn(3) {
			ttl := time.Duration(l.ttl) * time.Second
			c.wait(time.Until(c.w.start.Add(l.promised + ttl/2 + time.Duration(c.rnd.Int64N(int64(ttl/4))))))
			c.renew(l)
		}
		for c.w.plan.Workload.Renew && l.gone == 0 && !c.over() {
			c.pause(time.Duration(l.ttl) * time.Second / 3)
			c.renew(l)
		}
		for range c.rnd.IntN(4) {
			ttl := time.Duration(l.ttl) * time.Second
			if c.oneIn(3) { // just before its end, or after it
				c.wait(time.Until(c.w.start.Add(l.promised + ttl - 200*time.Millisecond +
					time.Duration(c.rnd.Int64N(int64(400*time.Millisecond))))))
			} else {
				c.pause(ttl * 2 / 3)
			}
			if c.over() || l.gone > 0 {
				break
			}
			if c.oneIn(4) {
				c.timeToLive(l)
			}
			c.renew(l)
		}
		if c.oneIn(3) {
			// Keys are attached in the batch that revokes the lease, at times.
			c.connect()
			var attaching sync.WaitGroup
			if c.oneIn(2) {
				for i := range 3 {
					ctx, cancel := c.timeout()
					attaching.Go(func() {
						defer cancel()
						_ = c.putKey(ctx, fmt.Sprintf("lease/%x/%d", l.id, i), l.id) // it may come too late
					})
				}
			}
			c.revoke(l)
			attaching.Wait()
		} else if c.oneIn(2) {
			c.wait(time.Until(c.w.start.Add(l.promised + time.Duration(l.ttl)*time.Second)))
			if !c.over() && c.oneIn(2) {
				c.revoke(l)
				again = c.oneIn(2)
			}
		}
		c.release(l)
		if l.open {
			id = 0
		}
		if !again {
			c.pause(time.Second)
		}
	}
}

// wait waits for d, or until the clients stop.
func (c *client) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.stopped:
	}
}

// attach puts keys with a lease. They go into one batch, with a revocation by another client at times.
func (c *client) attach(l *lease) {
	c.connect()
	var sent sync.WaitGroup
	var errs [2]error
	for i := range 1 + c.rnd.IntN(2) {
		key := fmt.Sprintf("lease/%x/%d", l.id, i)
		ctx, cancel := c.timeout()
		sent.Go(func() {
			defer cancel()
			errs[i] = c.putKey(ctx, key, l.id)
		})
	}
	sent.Wait()
	for _, err := range errs {
		switch {
		case err == nil:
		case status.Code(err) == codes.NotFound:
			c.lost(l)
		default:
			c.failed(err)
			return
		}
	}
}

// timeToLive asks for the remaining time of a lease.
func (c *client) timeToLive(l *lease) {
	ctx, cancel := c.timeout()
	defer cancel()
	r, err := pb.NewLeaseClient(c.connect()).LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: l.id, Keys: true})
	c.w.trace(c.process.name, "time to live of %x: %d, %v", l.id, r.GetTTL(), err)
	slack, orderly := c.w.plan.handovers(l.last-c.began, c.now()-c.began)
	switch left := l.end() - c.now(); {
	case err != nil:
		c.failed(err)
	case r.TTL < 0:
		c.lost(l)
	case r.GrantedTTL != l.ttl || float64(r.TTL) < left.Seconds()-1:
		c.w.fail("lease %x of %d s, renewed at %v, has %d s of %d at %v", l.id, l.ttl, l.promised, r.TTL, r.GrantedTTL,
			c.now())
	case orderly && float64(r.TTL) > (l.latest()-c.now()+slack).Seconds():
		c.w.fail("lease %x of %d s, renewed at %v the last time, has %d s at %v", l.id, l.ttl, l.last, r.TTL, c.now())
	}
}

func (c *client) now() time.Duration { return time.Since(c.w.start) }

// lost notes that an answer says that the lease does not exist.
func (c *client) lost(l *lease) {
	if l.gone == 0 {
		l.gone = c.now()
		if l.gone < l.end() {
			c.w.fail("lease %x of %d s, renewed at %v, is gone at %v", l.id, l.ttl, l.promised, l.gone)
		}
	}
}

// grantAgain grants leases under one id. When the time of a lease is up its client revokes it, while the leader is
// about to, and grants the next one: after the answer, or without waiting for it, so that both can be in the batch of
// the leader's revocation.
func (c *client) grantAgain() {
	defer c.disconnect()
	var l *lease
	for n := int64(1); !c.over(); n++ {
		if l == nil {
			l = &lease{id: int64(hash(c.process.name)>>32)<<16 + n, ttl: 2}
			if !c.grant(l) {
				l = nil
				continue
			}
		}
		c.attach(l)
		c.wait(time.Until(c.w.start.Add(l.promised + 1900*time.Millisecond +
			time.Duration(c.rnd.Int64N(int64(400*time.Millisecond))))))
		if c.over() {
			return
		}
		c.release(l)
		next, granted := &lease{id: l.id, ttl: 2}, false
		if c.oneIn(2) {
			c.revoke(l)
			granted = !l.open && c.grant(next)
		} else {
			granted = c.exchange(l, next)
		}
		if l = next; !granted {
			l = nil
		}
	}
}

// exchange sends the revocation of a lease, a put, and the grant of the next lease under the same id, without waiting
// for answers, and returns whether the lease was granted. The put shows whether that was after the revocation.
func (c *client) exchange(l, next *lease) (granted bool) {
	c.connect() // once, not in each goroutine
	putting, stopPutting := c.timeout()
	granting, stopGranting := c.timeout()
	var sent sync.WaitGroup
	sent.Go(func() {
		defer stopPutting()
		time.Sleep(8 * time.Millisecond)
		_ = c.putKey(putting, "again", 0) // an error is judged too
	})
	sent.Go(func() {
		defer stopGranting()
		time.Sleep(12 * time.Millisecond)
		granted = c.grantWithin(granting, next) == nil
	})
	op := c.revoke(l)
	sent.Wait()
	if granted && op.Outcome != history.Refused && (op.Outcome != history.Applied || op.Revision >= next.revision) {
		next.revoked = max(1, next.promised) // it may be the one that was revoked
	}
	return granted
}

// release makes other clients put no more keys with a lease.
func (c *client) release(l *lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = slices.DeleteFunc(c.held, func(other *lease) bool { return other == l })
}

func (c *client) grant(l *lease) bool {
	ctx, cancel := c.timeout()
	defer cancel()
	if err := c.grantWithin(ctx, l); err != nil {
		c.failed(err)
		return false
	}
	return true
}

func (c *client) grantWithin(ctx context.Context, l *lease) error {
	c.recorder.BeginGrant(l.id)
	l.promised = c.now()
	r, err := pb.NewLeaseClient(c.connect()).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: l.id, TTL: l.ttl})
	c.w.trace(c.process.name, "grant %x of %d s: %v", l.id, l.ttl, err)
	if err != nil {
		return err
	}
	if r.TTL != l.ttl {
		c.w.fail("lease %x of %d s was granted for %d s", l.id, l.ttl, r.TTL)
	}
	l.last, l.revision = c.now(), r.Header.Revision
	c.recorder.FinishGrant(l.id)
	// Its end is a revocation that its client does not ask for.
	c.recorder.Begin(func(int) history.Op { return history.Op{Revoke: l.id} })
	c.mu.Lock()
	c.leases = append(c.leases, l)
	c.held = append(c.held, l)
	c.mu.Unlock()
	return nil
}

func (c *client) renew(l *lease) {
	ctx, cancel := c.timeout()
	defer cancel()
	asked := c.now()
	ttl, err := c.keepAlive(ctx, l.id)
	c.w.trace(c.process.name, "renewal of %x: %d, %v", l.id, ttl, err)
	switch {
	case err != nil:
		l.last = c.now()
		c.failed(err)
	case ttl == 0:
		c.lost(l)
	default:
		l.promised, l.last = asked, c.now()
		if l.gone > 0 {
			c.w.fail("lease %x was renewed at %v, after it was gone at %v", l.id, asked, l.gone)
		}
	}
}

func (c *client) keepAlive(ctx context.Context, id int64) (ttl int64, err error) {
	stream, err := pb.NewLeaseClient(c.connect()).LeaseKeepAlive(ctx)
	if err != nil {
		return 0, err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
		return 0, err
	}
	r, err := stream.Recv()
	if err != nil {
		return 0, err
	}
	return r.TTL, stream.CloseSend()
}

func (c *client) revoke(l *lease) *history.Op {
	ctx, cancel := c.timeout()
	defer cancel()
	return c.revokeWithin(ctx, l)
}

func (c *client) revokeWithin(ctx context.Context, l *lease) *history.Op {
	l.revoked = c.now()
	op := c.recorder.Begin(func(int) history.Op { return history.Op{Revoke: l.id} })
	r, err := pb.NewLeaseClient(c.connect()).LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: l.id})
	if status.Code(err) == codes.NotFound && l.gone == 0 {
		l.revoked = 0
		c.lost(l)
		l.revoked = c.now()
	}
	if err != nil {
		c.recorder.Finish(op, outcomeOf(err), 0, nil, err)
		l.open = outcomeOf(err) != history.Refused
	} else {
		c.recorder.Finish(op, history.Applied, r.Header.Revision, nil, nil)
	}
	c.w.trace(c.process.name, "%v", op)
	return op
}
