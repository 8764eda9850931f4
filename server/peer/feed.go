package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/sqlbrain/sqlbrain/watch"
)

// Update is what a feed says next.
type Update struct {
	// Position's revision is the newest one whose events were all handed out, with
	// this update or before.
	Position
	// Events are whole revisions, in order; there are none in a heartbeat. Prev is
	// not filled.
	Events []*watch.Event
}

// Feed is what a leader committed, from a revision on. One goroutine at a time may
// call Next; Close may be called at any time.
type Feed struct {
	client *Client
	stream grpc.ClientStream
	ctx    context.Context // ends with the feed
	end    context.CancelCauseFunc
	// watchdog ends the feed; it is wound up only while Next waits, since a slow
	// caller is no silent leader.
	watchdog *time.Timer
	silent   error // what it ends the feed with

	complete int64 // revision up to which all events were handed out
	pending  []*mvccpb.Event
}

// Follow opens the feed of everything from the revision from on, which must be
// above 0. It lasts until ctx ends, Close is called, or Next fails. What the member
// says to it, that it does not lead for one, is Next's error; Follow's own are
// those of the connection.
func (c *Client) Follow(ctx context.Context, from int64) (*Feed, error) {
	if from <= 0 {
		return nil, fmt.Errorf("peer: a feed cannot start at revision %d", from)
	}
	f := &Feed{client: c, complete: from - 1, silent: fmt.Errorf("%w for %s", ErrSilent, c.silence)}
	f.ctx, f.end = context.WithCancelCause(ctx)
	f.watchdog = time.AfterFunc(c.silence, func() { f.end(f.silent) })
	defer f.watchdog.Stop()
	var err error
	f.stream, err = c.conn.NewStream(f.ctx, &grpc.StreamDesc{StreamName: "Follow", ServerStreams: true}, followMethod)
	if err != nil {
		return nil, f.fail(err, false)
	}
	request := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{StartRevision: from},
	}}
	// io.EOF says that the stream has ended; Next will tell why.
	if err := f.stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return nil, f.fail(err, true)
	}
	if err := f.stream.CloseSend(); err != nil {
		return nil, f.fail(err, true)
	}
	return f, nil
}

// Close ends the feed.
func (f *Feed) Close() {
	f.end(context.Canceled)
	f.watchdog.Stop()
}

// Next returns the next update, waiting for it. After an error the feed has ended:
// *watch.CompactedError if history it needs is gone, else one of errors.go, the
// context's or the connection's.
func (f *Feed) Next() (Update, error) {
	for {
		f.watchdog.Reset(f.client.silence)
		r := new(pb.WatchResponse)
		err := f.stream.RecvMsg(r)
		f.watchdog.Stop()
		if err != nil {
			return Update{}, f.fail(err, true)
		}
		if r.Canceled {
			return Update{}, f.fail(&watch.CompactedError{Revision: r.CompactRevision}, true)
		}
		f.pending = append(f.pending, r.Events...)
		if r.Fragment {
			continue
		}
		u, err := f.assemble(r)
		if err != nil {
			return Update{}, f.fail(err, true)
		}
		return u, nil
	}
}

// assemble makes an update of all pending events, which r was the last of.
func (f *Feed) assemble(r *pb.WatchResponse) (Update, error) {
	u := Update{Position: positionOf(r)}
	at, sub := f.complete, int32(0)
	if len(f.pending) > 0 {
		u.Events = make([]*watch.Event, len(f.pending))
	}
	for i, m := range f.pending {
		rev := m.GetKv().GetModRevision()
		switch {
		case rev <= f.complete || rev < at:
			return Update{}, fmt.Errorf("%w: an event of revision %d after revision %d", ErrMalformed, rev, at)
		case rev > at:
			at, sub = rev, 0
		default:
			sub++
		}
		u.Events[i] = fromMessage(m, sub)
	}
	if u.Revision < at {
		return Update{}, fmt.Errorf("%w: complete up to revision %d after an event of revision %d", ErrMalformed, u.Revision, at)
	}
	f.complete, f.pending = u.Revision, nil
	return u, nil
}

// fail ends the feed and returns what err means.
func (f *Feed) fail(err error, reached bool) error {
	defer f.Close()
	var compacted *watch.CompactedError
	if errors.As(err, &compacted) || errors.Is(err, ErrMalformed) {
		return fmt.Errorf("peer %s: %w", f.client, err)
	}
	if f.ctx.Err() != nil {
		return f.client.verdict(f.ctx, err, nil, reached)
	}
	if errors.Is(err, io.EOF) {
		// A node ends a feed with a reason; a stream that ends without one was cut by
		// something in between.
		err = io.ErrUnexpectedEOF
	}
	var trailer = map[string][]string{}
	if f.stream != nil {
		trailer = f.stream.Trailer()
	}
	return f.client.verdict(f.ctx, err, trailer, reached)
}
