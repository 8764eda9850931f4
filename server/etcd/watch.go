package etcd

import (
	"context"
	"errors"
	"io"
	"log/slog"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcdauth "go.etcd.io/etcd/server/v3/auth"

	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/transport"
	"github.com/sqlbrain/sqlbrain/watch"
)

// watchServer serves etcd's Watch service: one watch.Stream for each client
// stream. A receiver hands requests to it; the handler's own goroutine sends
// what it queues, so that the queue's order is the order on the wire.
type watchServer struct {
	pb.UnsafeWatchServer

	open          func() WatchStream
	guard         *guard.Guard
	audit         *auditor
	headers       headers
	streams       *transport.Streams
	log           *slog.Logger
	fragmentBytes int // responses above this are split where the watcher allows it
}

// Watch serves one stream of watches. A client that closes its half of the
// stream continues to receive.
func (s *watchServer) Watch(stream pb.Watch_WatchServer) error {
	watches := s.open()
	defer watches.Close()
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	s.streams.Receive(func() {
		for {
			r, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				cancel(err)
				return
			}
			if err := s.handle(ctx, watches, r); err != nil {
				cancel(err)
				return
			}
		}
	})
	for {
		r, err := watches.Next(ctx)
		if err == nil {
			err = sendFragments(s.watchResponse(r), r.Fragment, s.fragmentBytes, stream.Send)
		}
		if err != nil {
			return s.ended(ctx, err)
		}
	}
}

// handle hands a request to the stream. An error ends the stream.
func (s *watchServer) handle(ctx context.Context, watches WatchStream, r *pb.WatchRequest) error {
	switch u := r.RequestUnion.(type) {
	case *pb.WatchRequest_CreateRequest:
		if u.CreateRequest != nil {
			c := watchCreate(u.CreateRequest)
			decision := watch.Decision{}
			if c.StartRevision >= 0 { // else that is why it is refused
				reason, err := s.refusal(ctx, c.Key, c.End)
				if err != nil {
					return err
				}
				if decision = watch.Permitted; reason != "" {
					decision = watch.Refused(reason)
					s.audit.deniedWatch(ctx, c.Key, c.End, reason)
				}
			}
			watches.Create(decision, c)
		}
	case *pb.WatchRequest_CancelRequest:
		if u.CancelRequest != nil {
			watches.Cancel(u.CancelRequest.WatchId)
		}
	case *pb.WatchRequest_ProgressRequest:
		if u.ProgressRequest != nil {
			watches.RequestProgress()
		}
	default:
		// An error would end the stream's other watches too; etcd continues as well. Not a warning: a client
		// could fill the log with requests of a few bytes.
		s.log.Debug("unknown watch request ignored")
	}
	return nil
}

// refusal returns why the caller may not watch the keys, in etcd's words; "" if it may. The error says that this is not
// known: etcd knows always, and its client takes a refusal for the last word, but opens the watches of a stream that
// ended again.
func (s *watchServer) refusal(ctx context.Context, key, end []byte) (string, error) {
	err := s.guard.Watch(ctx, key, end)
	switch {
	case err == nil:
		return "", nil
	case errors.Is(err, etcdauth.ErrInvalidAuthToken):
		return rpctypes.ErrGRPCInvalidAuthToken.Error(), nil
	case errors.Is(err, etcdauth.ErrAuthOldRevision):
		return rpctypes.ErrGRPCAuthOldRevision.Error(), nil
	case errors.Is(err, etcdauth.ErrUserEmpty):
		return rpctypes.ErrGRPCUserEmpty.Error(), nil
	case errors.Is(err, etcdauth.ErrPermissionDenied):
		return rpctypes.ErrGRPCPermissionDenied.Error(), nil
	}
	return "", err
}

// ended returns the error a stream ends with.
func (s *watchServer) ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	switch {
	case errors.Is(err, context.Canceled):
		return rpctypes.ErrGRPCWatchCanceled
	case errors.Is(err, watch.ErrClosed):
		if s.headers.node.Status().NotServing != nil {
			return rpctypes.ErrGRPCNoLeader
		}
		return rpctypes.ErrGRPCStopped
	}
	return err
}

func watchCreate(r *pb.WatchCreateRequest) watch.CreateRequest {
	c := watch.CreateRequest{
		WatchID:        r.WatchId,
		Key:            r.Key,
		End:            r.RangeEnd,
		StartRevision:  r.StartRevision,
		PrevKV:         r.PrevKv,
		ProgressNotify: r.ProgressNotify,
		Fragment:       r.Fragment,
	}
	if len(c.Key) == 0 {
		c.Key = []byte{0} // the smallest key
	}
	for _, f := range r.Filters {
		switch f {
		case pb.WatchCreateRequest_NOPUT:
			c.NoPut = true
		case pb.WatchCreateRequest_NODELETE:
			c.NoDelete = true
		}
	}
	return c
}

func (s *watchServer) watchResponse(r *watch.Response) *pb.WatchResponse {
	out := &pb.WatchResponse{
		Header:          s.headers.at(r.Revision),
		WatchId:         r.WatchID,
		Created:         r.Created,
		Canceled:        r.Canceled,
		CancelReason:    r.CancelReason,
		CompactRevision: r.CompactRevision,
	}
	if len(r.Events) == 0 {
		return out
	}
	out.Events = make([]*mvccpb.Event, len(r.Events))
	events := make([]mvccpb.Event, len(r.Events))
	for i, e := range r.Events {
		fillEvent(&events[i], e)
		if r.Prev != nil {
			events[i].PrevKv = keyValue(r.Prev[i])
		}
		out.Events[i] = &events[i]
	}
	return out
}

// fillEvent gives a delete's kv its key and revision, and nothing else.
func fillEvent(out *mvccpb.Event, e *watch.Event) {
	if e.Type == watch.Delete {
		out.Type = mvccpb.Event_DELETE
		out.Kv = &mvccpb.KeyValue{Key: e.Record.Key, ModRevision: e.Record.ModRevision}
		return
	}
	out.Kv = keyValue(e.Record)
}
