package etcd

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election"
	epb "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"google.golang.org/protobuf/proto"
)

// electionServer serves etcd's Election service, for elections among clients.
type electionServer struct {
	epb.UnsafeElectionServer // a method missing is a compile error

	concurrency *concurrency
}

// Campaign answers when the caller leads. Without a lease in the request its
// candidacy hangs on a new one of 60 s, which is the caller's to renew.
func (s *electionServer) Campaign(ctx context.Context, r *epb.CampaignRequest) (*epb.CampaignResponse, error) {
	return call(ctx, s.concurrency, v3election.NewElectionServer, epb.ElectionServer.Campaign, r)
}

// Proclaim replaces the value of a caller that leads still.
func (s *electionServer) Proclaim(ctx context.Context, r *epb.ProclaimRequest) (*epb.ProclaimResponse, error) {
	return call(ctx, s.concurrency, v3election.NewElectionServer, epb.ElectionServer.Proclaim, r)
}

// Leader answers who leads now.
func (s *electionServer) Leader(ctx context.Context, r *epb.LeaderRequest) (*epb.LeaderResponse, error) {
	return call(ctx, s.concurrency, v3election.NewElectionServer, epb.ElectionServer.Leader, r)
}

// Observe sends who leads now, and who leads next, until the caller has enough.
func (s *electionServer) Observe(r *epb.LeaderRequest, stream epb.Election_ObserveServer) error {
	return s.concurrency.run(stream.Context(), func(ctx context.Context, c *clientv3.Client) error {
		observing, end := context.WithCancel(ctx)
		var recipe sync.WaitGroup
		defer recipe.Wait()
		defer end()
		o := &observer{Election_ObserveServer: stream, ctx: observing, more: make(chan struct{}, 1)}
		ended := make(chan error, 1)
		recipe.Go(func() { ended <- v3election.NewElectionServer(c).Observe(r, o) })
		err := o.relay(ended)
		if err == nil {
			// When its context ends, what ended it may look like the end of the
			// election to it.
			err = ctx.Err()
		}
		return err
	})
}

// observedBytes bounds the answers of Observe that wait for a client that reads slowly.
const observedBytes = 1 << 20

// observer is a stream whose context is that of the calls made for it. Send does not wait for the client: etcd's
// recipe would not read its watch in the meantime, and etcd's client keeps all events of a watch that are not read.
// Of answers that do not fit observedBytes the newest remains, which is what the recipe promises.
type observer struct {
	epb.Election_ObserveServer
	ctx  context.Context
	more chan struct{} // has a token when an answer may wait

	mu      sync.Mutex
	waiting []*epb.LeaderResponse
	bytes   int
}

func (o *observer) Context() context.Context { return o.ctx }

// Send queues an answer.
func (o *observer) Send(r *epb.LeaderResponse) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = append(o.waiting, r)
	o.bytes += proto.Size(r)
	for o.bytes > observedBytes && len(o.waiting) > 1 {
		o.drop()
	}
	select {
	case o.more <- struct{}{}:
	default:
	}
	return nil
}

// drop returns the oldest answer, which no longer waits. The caller must hold mu.
func (o *observer) drop() *epb.LeaderResponse {
	oldest := o.waiting[0]
	o.waiting[0] = nil
	o.waiting = o.waiting[1:]
	o.bytes -= proto.Size(oldest)
	return oldest
}

// next returns the oldest answer that waits, nil if there is none.
func (o *observer) next() *epb.LeaderResponse {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) == 0 {
		return nil
	}
	return o.drop()
}

// relay sends what is queued to the client until the call that queues it has ended, with the error on ended.
func (o *observer) relay(ended <-chan error) error {
	for {
		select {
		case <-o.more:
		case err := <-ended:
			if err != nil {
				return err
			}
			return o.flush()
		}
		if err := o.flush(); err != nil {
			return err
		}
	}
}

func (o *observer) flush() error {
	for r := o.next(); r != nil; r = o.next() {
		if err := o.Election_ObserveServer.Send(r); err != nil {
			return err
		}
	}
	return nil
}

// Resign ends the leadership, or the candidacy, of the caller.
func (s *electionServer) Resign(ctx context.Context, r *epb.ResignRequest) (*epb.ResignResponse, error) {
	return call(ctx, s.concurrency, v3election.NewElectionServer, epb.ElectionServer.Resign, r)
}
