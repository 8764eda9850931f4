package simulation

import (
	"context"
	"fmt"
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
	keys     []string
	promised time.Duration // when the newest request that was acknowledged was sent
	last     time.Duration // when the newest request that may have renewed it was answered
	revoked  time.Duration // when its client asked to revoke it; 0: never
	gone     time.Duration // when an answer said first that it does not exist; 0: never
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

// hold grants leases, puts keys with them, renews them for a while, and then lets them
// expire or revokes them.
func (c *client) hold() {
	defer c.disconnect()
	for n := int64(1); !c.over(); n++ {
		l := &lease{id: int64(hash(c.process.name)>>32)<<16 + n, ttl: 2 + c.rnd.Int64N(2)}
		if !c.grant(l) {
			continue
		}
		for i := range 1 + c.rnd.IntN(2) {
			key := fmt.Sprintf("lease/%x/%d", l.id, i)
			ctx, cancel := c.timeout()
			err := c.putKey(ctx, key, l.id)
			cancel()
			switch {
			case err == nil:
				l.keys = append(l.keys, key)
			case status.Code(err) == codes.NotFound:
				c.lost(l)
			default:
				c.failed(err)
			}
		}
		for range c.rnd.IntN(4) {
			c.pause(time.Duration(l.ttl) * time.Second * 2 / 3)
			if c.over() || l.gone > 0 {
				break
			}
			c.renew(l)
		}
		if c.rnd.IntN(3) == 0 {
			c.revoke(l)
		}
		c.pause(time.Second)
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

func (c *client) grant(l *lease) bool {
	ctx, cancel := c.timeout()
	defer cancel()
	c.recorder.BeginGrant(l.id)
	l.promised = c.now()
	r, err := pb.NewLeaseClient(c.connect()).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: l.id, TTL: l.ttl})
	c.w.trace(c.process.name, "grant %x of %d s: %v", l.id, l.ttl, err)
	if err != nil {
		c.failed(err)
		return false
	}
	if r.TTL != l.ttl {
		c.w.fail("lease %x of %d s was granted for %d s", l.id, l.ttl, r.TTL)
	}
	l.last = c.now()
	c.recorder.FinishGrant(l.id)
	// Its end is a revocation that its client does not ask for.
	c.recorder.Begin(func(int) history.Op { return history.Op{Revoke: l.id} })
	c.mu.Lock()
	c.leases = append(c.leases, l)
	c.mu.Unlock()
	return true
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

func (c *client) revoke(l *lease) {
	ctx, cancel := c.timeout()
	defer cancel()
	l.revoked = c.now()
	op := c.recorder.Begin(func(int) history.Op { return history.Op{Revoke: l.id} })
	r, err := pb.NewLeaseClient(c.connect()).LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: l.id})
	if status.Code(err) == codes.NotFound && l.gone == 0 {
		l.revoked = 0
		c.lost(l)
		l.revoked = c.now()
	}
	if c.finish(op, history.Applied, r.GetHeader(), nil, err) != nil {
		c.failed(err)
	}
}
