package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election"
	epb "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
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
		err := v3election.NewElectionServer(c).Observe(r, observer{stream, ctx})
		if err == nil {
			// When its context ends, what ended it may look like the end of the
			// election to it.
			err = ctx.Err()
		}
		return err
	})
}

// observer is a stream whose context is that of the calls made for it.
type observer struct {
	epb.Election_ObserveServer
	ctx context.Context
}

func (o observer) Context() context.Context { return o.ctx }

// Resign ends the leadership, or the candidacy, of the caller.
func (s *electionServer) Resign(ctx context.Context, r *epb.ResignRequest) (*epb.ResignResponse, error) {
	return call(ctx, s.concurrency, v3election.NewElectionServer, epb.ElectionServer.Resign, r)
}
