package feed

import (
	"context"
	"errors"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/server/cluster/feed/feedpb"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/watch"
)

// Follow implements feedpb.PeerServer. It serves one feed until the client ends it, this
// member's leadership ends, or events that the feed needs are compacted. One goroutine
// sends. Only the hub's stream queues events, and that queue is bounded.
func (s *service) Follow(r *feedpb.FollowRequest, stream grpc.ServerStreamingServer[feedpb.Update]) error {
	from := r.GetRevision()
	if from <= 0 {
		return status.Error(codes.InvalidArgument, "sqlbrain: a feed needs a start revision above 0")
	}
	if err := member.CheckProtocol(int(r.GetProtocol()), s.protocol); err != nil {
		return status.Errorf(codes.FailedPrecondition, "sqlbrain: the leader refuses the feed: %v", err)
	}
	// First, so that a leadership that ends during the next calls ends the feed, even if
	// this member leads again by then.
	lost := s.node.LeadershipEnded()
	at, err := s.node.Position(stream.Context())
	if err != nil {
		return notLeader(err)
	}
	if from > at.Revision+1 {
		return rpctypes.ErrGRPCFutureRev
	}
	watches, err := s.node.Stream()
	if err != nil {
		return notLeader(err)
	}
	defer watches.Close()

	ctx, cancel := context.WithCancelCause(stream.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel(nil)
	group.Go(func() {
		select {
		case <-lost:
			cancel(mvcc.ErrNotLeader)
		case <-ctx.Done():
		}
		watches.Close() // ends Next
	})
	watches.Create(watch.Permitted, watch.CreateRequest{Key: []byte{0}, End: []byte{0}, StartRevision: from})
	at.Revision = from - 1
	defer s.node.FeedEnded()
	f := &feeder{service: s, stream: stream, watches: watches, at: at, greets: true}
	if err = f.run(ctx); ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return notLeader(err)
}

// feeder sends one feed. It belongs to one goroutine.
type feeder struct {
	*service
	stream  grpc.ServerStreamingServer[feedpb.Update]
	watches *watch.Stream
	// at is the position of the next message. The receiver has all events up to its
	// revision.
	at     replica.Update
	greets bool // the next message is the first one
}

// run sends events as they come, and heartbeats.
func (f *feeder) run(ctx context.Context) error {
	for {
		if err := f.heartbeat(); err != nil {
			return err
		}
		done, err := f.relay(ctx)
		if done || err != nil {
			return err
		}
		// The response comes after all events up to the revision that it names.
		f.watches.RequestProgress()
	}
}

func (f *feeder) heartbeat() error {
	f.at.CompactRevision = f.node.CompactRevision()
	return f.send(nil, f.at.Revision, false)
}

// relay sends events until the next heartbeat is due. done reports that the feed has ended and that
// the receiver was sent the reason.
func (f *feeder) relay(ctx context.Context) (done bool, err error) {
	interval := f.node.HeartbeatPeriod()
	for {
		r, err := f.watches.Next(interval)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil && errors.Is(err, interval.Err()):
			return false, nil
		case errors.Is(err, watch.ErrClosed):
			return false, mvcc.ErrNotLeader
		case err != nil:
			return false, err
		case r.Canceled:
			return true, f.compacted(r)
		case len(r.Events) > 0:
			err = f.events(r.Events)
		case r.WatchID == watch.NoWatchID && r.Revision > f.at.Revision:
			err = f.send(nil, r.Revision, false)
		}
		if err != nil {
			return false, err
		}
	}
}

// compacted notifies the receiver that events it needs were compacted. The hub cancels
// this watcher for no other reason.
func (f *feeder) compacted(r *watch.Response) error {
	f.at.CompactRevision = r.CompactRevision
	m := f.message(f.at)
	m.Compacted = true
	return f.stream.Send(m)
}

// events sends events, which are whole revisions, in one message or in fragments. The
// hub's responses name the visible revision, which may be far ahead of their events, so the last
// event decides up to which revision the receiver is complete.
func (f *feeder) events(events []*watch.Event) error {
	last := events[len(events)-1].Record.ModRevision
	for len(events) > 0 {
		n, size := 0, 0
		for n < len(events) && (n == 0 || size+eventSize(events[n]) <= f.fragmentBytes) {
			size += eventSize(events[n])
			n++
		}
		piece := events[:n]
		events = events[n:]
		revision := last
		if len(events) > 0 {
			revision = f.at.Revision
		}
		if err := f.send(piece, revision, len(events) > 0); err != nil {
			return err
		}
	}
	return nil
}

// send sends one message, after which the receiver has all events up to revision. It
// blocks while the receiver does not read.
func (f *feeder) send(events []*watch.Event, revision int64, fragment bool) error {
	f.at.Revision = revision
	// Read after the events were committed, so at least as new as their users and roles.
	// The receiver loads it before it applies the events.
	f.at.AuthVersion = f.node.AuthVersion()
	m := f.message(f.at)
	if f.greets {
		m.Protocol, f.greets = uint32(f.protocol), false
	}
	m.Events, m.Fragment, m.KeepsLock = toMessages(events), fragment, f.node.KeepsLock()
	return f.stream.Send(m)
}
