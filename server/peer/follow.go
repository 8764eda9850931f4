package peer

import (
	"context"
	"errors"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/watch"
)

// follow serves one feed until its client goes, this node's leadership ends, or
// the history it needs is compacted. One goroutine sends; nothing is queued but
// what the hub's stream has, which is bounded.
func (s *service) follow(r *pb.WatchRequest, stream grpc.ServerStream) error {
	from := r.GetCreateRequest().GetStartRevision()
	if from <= 0 {
		return status.Error(codes.InvalidArgument, "sqlbrain: a feed needs a start revision above 0")
	}
	// The leadership first: should it end meanwhile, this channel says so, whoever
	// leads afterwards.
	lost := s.node.Leading()
	at, err := s.node.Position(stream.Context())
	if err != nil {
		return notLeader(err)
	}
	if from > at.Revision+1 {
		return rpctypes.ErrGRPCFutureRev
	}
	watches, err := s.node.FollowFrom(from)
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
			cancel(backend.ErrNotLeader)
		case <-ctx.Done():
		}
	})
	watches.Create(watch.CreateRequest{Key: []byte{0}, End: []byte{0}, StartRevision: from})
	at.Revision = from - 1
	f := &feeder{service: s, stream: stream, watches: watches, at: at}
	if err = f.run(ctx); ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return notLeader(err)
}

// feeder sends one feed. It belongs to one goroutine.
type feeder struct {
	*service
	stream  grpc.ServerStream
	watches *watch.Stream
	// at is what the receiver is told next; its revision is the newest one that
	// the receiver has all events of.
	at Position
}

// run sends events as they come, and a heartbeat at every interval.
func (f *feeder) run(ctx context.Context) error {
	for {
		if err := f.beat(); err != nil {
			return err
		}
		done, err := f.relay(ctx)
		if done || err != nil {
			return err
		}
		// The answer comes behind all events up to the revision it names.
		f.watches.RequestProgress()
	}
}

func (f *feeder) beat() error {
	f.at.CompactRevision = f.node.CompactRevision()
	return f.send(nil, f.at.Revision, false)
}

// relay sends events for one interval. It reports done when the feed has ended
// and its receiver knows why.
func (f *feeder) relay(ctx context.Context) (done bool, err error) {
	interval, cancel := context.WithTimeout(ctx, f.heartbeat)
	defer cancel()
	for {
		r, err := f.watches.Next(interval)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			return false, nil
		case errors.Is(err, watch.ErrClosed):
			return false, backend.ErrNotLeader
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

// compacted tells the receiver that the history it needs is gone. The hub cancels
// a watcher that nobody cancelled for no other reason.
func (f *feeder) compacted(r *watch.Response) error {
	f.at.CompactRevision = r.CompactRevision
	return f.stream.SendMsg(&pb.WatchResponse{
		Header: f.at.header(f.node.ClusterID()), CompactRevision: r.CompactRevision, Canceled: true,
	})
}

// events sends events, which are whole revisions, in one message or in fragments.
// The header of an event response names the frontier, which may be far ahead of
// these events; complete is the receiver up to the last of them.
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

// send sends one message, after which the receiver is complete up to revision. It
// waits while the receiver does not take what was sent.
func (f *feeder) send(events []*watch.Event, revision int64, fragment bool) error {
	f.at.Revision = revision
	// Not older than what these events were committed under: the receiver obeys it first.
	f.at.AuthVersion = f.node.AuthVersion()
	return f.stream.SendMsg(&pb.WatchResponse{
		Header:          f.at.header(f.node.ClusterID()),
		CompactRevision: f.at.CompactRevision,
		WatchId:         f.at.AuthVersion,
		Events:          toMessages(events),
		Fragment:        fragment,
	})
}
