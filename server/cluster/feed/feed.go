package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/server/cluster/feed/feedpb"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/watch"
)

// Feed is the stream of a leader's commits, starting at a revision. One goroutine at a
// time may call Next. Close may be called at any time.
type Feed struct {
	client *Client
	stream grpc.ServerStreamingClient[feedpb.Update]
	ctx    context.Context // ends with the feed
	end    context.CancelCauseFunc
	// watchdog ends the feed. It runs only while Next waits, because a slow caller does
	// not mean a silent leader.
	watchdog *time.Timer
	silent   error // with which the watchdog ends the feed

	met      bool  // the first message has come
	complete int64 // Next has returned all events up to this revision
	pending  []*feedpb.Event
}

// Follow opens the feed of all events starting at the revision from, which must be above
// 0. The feed lasts until ctx ends, Close is called, or Next fails. Follow returns errors
// of the connection; the member's answer, such as ErrNotLeader, is returned by Next.
func (c *Client) Follow(ctx context.Context, from int64) (*Feed, error) {
	if from <= 0 {
		return nil, fmt.Errorf("feed: a feed cannot start at revision %d", from)
	}
	f := &Feed{client: c, complete: from - 1, silent: fmt.Errorf("%w for %s", ErrSilent, c.silence)}
	f.ctx, f.end = context.WithCancelCause(ctx)
	f.watchdog = time.AfterFunc(c.silence, func() { f.end(f.silent) })
	defer f.watchdog.Stop()
	var err error
	f.stream, err = feedpb.NewPeerClient(c.member.Conn()).Follow(f.ctx, &feedpb.FollowRequest{
		Revision: from, Protocol: uint32(c.protocol),
	})
	if err != nil {
		return nil, f.fail(err, nil, false)
	}
	return f, nil
}

// Close ends the feed.
func (f *Feed) Close() {
	f.end(context.Canceled)
	f.watchdog.Stop()
}

// Next waits for the next update and returns it. It has returned all events up to the
// update's revision, in this update or before; a heartbeat has none. Prev of events is not
// set. After an error the feed has ended. The error is a *watch.CompactedError if events it needs were compacted, one
// that wraps member.ErrProtocol, or one of this package, of package link, of the context or of the connection.
func (f *Feed) Next() (replica.Update, error) {
	for {
		f.watchdog.Reset(f.client.silence)
		r, err := f.stream.Recv()
		f.watchdog.Stop()
		if err != nil {
			return replica.Update{}, f.fail(err, f.stream.Trailer(), true)
		}
		if !f.met {
			if err := member.CheckProtocol(f.client.protocol, int(r.GetProtocol())); err != nil {
				f.Close()
				return replica.Update{}, fmt.Errorf("feed from %s: %w", f.client.member, err)
			}
			f.met = true
		}
		if r.Compacted {
			f.Close()
			return replica.Update{}, fmt.Errorf("feed from %s: %w", f.client.member,
				&watch.CompactedError{Revision: r.CompactRevision})
		}
		f.pending = append(f.pending, r.Events...)
		if r.Fragment {
			continue
		}
		u, err := f.assemble(r)
		if err != nil {
			f.Close()
			return replica.Update{}, fmt.Errorf("feed from %s: %w", f.client.member, err)
		}
		return u, nil
	}
}

// assemble makes an update of all pending events. r is the last message that had some.
func (f *Feed) assemble(r *feedpb.Update) (replica.Update, error) {
	u := updateOf(r)
	at, sub := f.complete, int32(0)
	if len(f.pending) > 0 {
		u.Events = make([]*watch.Event, len(f.pending))
	}
	for i, m := range f.pending {
		rev := m.GetKv().GetModRevision()
		switch {
		case rev <= f.complete || rev < at:
			return replica.Update{}, fmt.Errorf("%w: an event of revision %d after revision %d", ErrMalformed, rev, at)
		case rev > at:
			at, sub = rev, 0
		default:
			sub++
		}
		u.Events[i] = fromMessage(m, sub)
	}
	if u.Revision < at {
		return replica.Update{}, fmt.Errorf("%w: complete up to revision %d after an event of revision %d", ErrMalformed,
			u.Revision, at)
	}
	f.complete, f.pending = u.Revision, nil
	return u, nil
}

// updateOf returns m without its events.
func updateOf(m *feedpb.Update) replica.Update {
	p := m.GetPosition()
	return replica.Update{Term: int64(p.GetTerm()), Revision: p.GetRevision(), CompactRevision: m.GetCompactRevision(),
		AuthVersion: m.GetAuthVersion(), KeepsLock: m.GetKeepsLock()}
}

// fail ends the feed and returns what err means.
func (f *Feed) fail(err error, trailer metadata.MD, reached bool) error {
	defer f.Close()
	if errors.Is(err, io.EOF) {
		// A member ends a feed with an error. A stream that ends without one was cut by a
		// proxy in between.
		err = io.ErrUnexpectedEOF
	}
	return f.client.failure(f.ctx, err, trailer, reached)
}
