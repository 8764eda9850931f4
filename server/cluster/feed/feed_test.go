package feed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/cluster/feed/feedpb"
	"github.com/sqlbrain/sqlbrain/server/cluster/link"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/watch"
)

func TestFeedReturnsEventsUnchanged(t *testing.T) {
	l := newLeader(t, watch.Config{})
	c := newClient(t, serve(t, newService(l), l))
	first := []*watch.Event{put(1, 0, 10), put(2, 0, 0), put(2, 1, 5), del(2, 2), del(3, 0)}
	l.commit(first...)
	f := follow(t, c, 1)
	u, err := f.Next()
	require.NoError(t, err)
	require.Equal(t, replica.Update{Term: term, CompactRevision: -1}, u, "the feed says at once that it runs")
	require.Equal(t, first, until(t, f, 3))

	second := []*watch.Event{put(4, 0, 1)}
	l.commit(second...)
	require.Equal(t, second, until(t, f, 4))
	require.Equal(t, second, until(t, follow(t, c, 4), 4), "a feed begins where it is asked to")

	next := follow(t, c, 5)
	l.commit(put(5, 0, 1), put(5, 1, 1))
	require.Len(t, until(t, next, 5), 2)
}

func TestMembersReportTheirFigures(t *testing.T) {
	l := newLeader(t, watch.Config{})
	s := newService(l)
	s.figures = func() (map[string]float64, error) { return map[string]float64{"watchers": 3}, nil }
	got, err := newClient(t, serve(t, s, l)).Figures(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"watchers": 3}, got)
}

func TestMembersRecordALossForOthers(t *testing.T) {
	l := newLeader(t, watch.Config{})
	c := newClient(t, serve(t, newService(l), l))
	want := coder.DataLoss{Sequence: 1 << 41, Term: 7, Revision: 5, Member: 1 << 63}
	require.NoError(t, c.RecordLoss(t.Context(), want))
	require.Equal(t, want, l.lost)
	l.err = errors.New("the database is away")
	require.Error(t, c.RecordLoss(t.Context(), want))
}

func TestFeedSaysWhetherTheLeaderKeepsTheLock(t *testing.T) {
	l := newLeader(t, watch.Config{})
	f := follow(t, newClient(t, serve(t, newService(l), l)), 1)
	for _, keeps := range []bool{true, false} {
		l.keeps.Store(keeps)
		for u := (replica.Update{KeepsLock: !keeps}); u.KeepsLock != keeps; {
			var err error
			u, err = f.Next()
			require.NoError(t, err)
		}
	}
}

// sink is the leader's side of a feed that ends with the first message.
type sink struct {
	grpc.ServerStreamingServer[feedpb.Update]
	ctx context.Context
	end context.CancelFunc
}

func (s sink) Context() context.Context { return s.ctx }

func (s sink) Send(*feedpb.Update) error {
	s.end()
	return nil
}

// TestTheLeaderNoticesTheEndOfAFeed that has begun.
func TestTheLeaderNoticesTheEndOfAFeed(t *testing.T) {
	l := newLeader(t, watch.Config{})
	s := newService(l)
	for start, ended := range map[int64]int64{2: 0, 1: 1} { // revision 2 does not follow what the leader has
		ctx, cancel := context.WithCancel(t.Context())
		request := &feedpb.FollowRequest{Revision: start, Protocol: uint32(s.protocol)}
		require.Error(t, s.Follow(request, sink{ctx: ctx, end: cancel}))
		require.Equal(t, ended, l.ended.Swap(0))
	}
}

func TestLargeRevisionsComeInFragments(t *testing.T) {
	l := newLeader(t, watch.Config{})
	s := newService(l)
	s.fragmentBytes = 1000
	c := newClient(t, serve(t, s, l))
	events := []*watch.Event{put(1, 0, 300)}
	for i := range 9 {
		events = append(events, put(2, int32(i), 400))
	}
	events = append(events, put(2, 9, 5000), put(3, 0, 10))
	l.commit(events...)

	fragments, got := 0, 0
	for _, m := range wire(t, c, 1, 3) {
		if len(m.Events) > 1 {
			size := 0
			for _, e := range m.Events {
				size += len(e.Kv.Key) + len(e.Kv.Value)
			}
			require.LessOrEqual(t, size, 1000)
		}
		if got += len(m.Events); m.Fragment {
			fragments++
			require.Zero(t, m.Position.Revision, "a fragment completes nothing")
		}
	}
	require.Equal(t, len(events), got)
	require.Greater(t, fragments, 3)
	require.Equal(t, events, until(t, follow(t, c, 1), 3))
	require.Equal(t, events[1:], until(t, follow(t, c, 2), 3))
}

// wire reads the messages of a feed as they are sent, until one completes rev.
func wire(t *testing.T, c *Client, from, rev int64) (messages []*feedpb.Update) {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	s, err := feedpb.NewPeerClient(c.member.Conn()).Follow(ctx,
		&feedpb.FollowRequest{Revision: from, Protocol: member.Protocol})
	require.NoError(t, err)
	for {
		m, err := s.Recv()
		require.NoError(t, err)
		require.Equal(t, []uint64{cluster, memberID}, []uint64{m.Position.ClusterId, m.Position.MemberId})
		if messages = append(messages, m); m.Position.Revision >= rev {
			return messages
		}
	}
}

// The hub says of a watcher that catches up that the store is at the visible revision; what
// a feed says must speak of nothing but what was sent.
func TestProgressNeverOvertakesEvents(t *testing.T) {
	l := newLeader(t, watch.Config{RingEvents: 10, QueueEvents: 20})
	s := newService(l)
	l.pace = time.Millisecond
	s.fragmentBytes = 500
	c := newClient(t, serve(t, s, l))
	const revisions = 3000
	published := make(chan struct{})
	go func() {
		defer close(published)
		for rev := int64(1); rev <= revisions; rev++ {
			l.commit(put(rev, 0, 50), put(rev, 1, 50))
		}
	}()
	sent, beats := int64(0), 0
	for _, m := range wire(t, c, 1, revisions) {
		if n := len(m.Events); n > 0 {
			sent = m.Events[n-1].Kv.ModRevision
		} else {
			beats++
		}
		require.LessOrEqual(t, m.Position.Revision, sent)
	}
	require.EqualValues(t, revisions, sent)
	require.Positive(t, beats)
	<-published
}

func TestFeedsFromAnywhereAreExact(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	l := newLeader(t, watch.Config{RingEvents: 50, QueueEvents: 30})
	s := newService(l)
	s.fragmentBytes = 700
	c := newClient(t, serve(t, s, l))
	var all []*watch.Event
	const revisions = 1000
	for rev := int64(1); rev <= revisions; rev++ {
		for sub := range int32(1 + random.IntN(4)) {
			e := put(rev, sub, random.IntN(400))
			if random.IntN(4) == 0 {
				e = del(rev, sub)
			}
			all = append(all, e)
		}
	}
	since := func(from int64) []*watch.Event {
		for i, e := range all {
			if e.Record.ModRevision >= from {
				return all[i:]
			}
		}
		return nil
	}
	l.commit(all[:len(all)-len(since(300))]...)
	type result struct {
		from   int64
		events []*watch.Event
	}
	results := make(chan result)
	for range 8 {
		from := 1 + random.Int64N(300)
		f := follow(t, c, from)
		go func() {
			r := result{from: from}
			defer func() { results <- r }()
			for {
				u, err := f.Next()
				if err != nil {
					t.Error(err)
					return
				}
				if r.events = append(r.events, u.Events...); u.Revision >= revisions {
					return
				}
			}
		}()
	}
	for rest := since(300); len(rest) > 0; {
		n := min(len(rest), 1+random.IntN(10))
		for n < len(rest) && rest[n].Record.ModRevision == rest[n-1].Record.ModRevision {
			n++
		}
		l.commit(rest[:n]...)
		rest = rest[n:]
	}
	for range 8 {
		r := <-results
		require.Equal(t, since(r.from), r.events, r.from)
	}
}

// A follower that reads nothing must neither delay the leader nor cost it memory.
func TestASlowFollowerReadsFromHistory(t *testing.T) {
	l := newLeader(t, watch.Config{RingEvents: 10, QueueEvents: 10})
	c := newClient(t, serve(t, newService(l), l))
	f := follow(t, c, 1)
	_, err := f.Next()
	require.NoError(t, err)
	const revisions = 2000 // 20 MB, far more than queues and windows hold
	for rev := int64(1); rev <= revisions; rev++ {
		l.commit(put(rev, 0, 10_000))
	}
	events := until(t, f, revisions)
	require.Len(t, events, revisions)
	for i, e := range events {
		require.EqualValues(t, i+1, e.Record.ModRevision)
	}
}

func TestHeartbeatsCarryTheCompactRevision(t *testing.T) {
	l := newLeader(t, watch.Config{})
	c := newClient(t, serve(t, newService(l), l))
	l.commit(put(1, 0, 1), put(2, 0, 1), put(3, 0, 1))
	f := follow(t, c, 4)
	l.compacted(2)
	for {
		u, err := f.Next()
		require.NoError(t, err)
		require.Empty(t, u.Events)
		require.EqualValues(t, 3, u.Revision)
		if u.CompactRevision == 2 {
			return
		}
	}
}

// The receiver must know the users and roles of commits before it shows them.
func TestEventsComeWithTheVersionOfUsersAndRoles(t *testing.T) {
	l := newLeader(t, watch.Config{})
	c := newClient(t, serve(t, newService(l), l))
	l.commit(put(1, 0, 1))
	f := follow(t, c, 2)
	for version := int64(1); version <= 3; version++ {
		l.mu.Lock()
		l.at.AuthVersion = version
		l.mu.Unlock()
		l.commit(put(1+version, 0, 1))
		for events := 0; events == 0; {
			u, err := f.Next()
			require.NoError(t, err)
			if events = len(u.Events); events > 0 {
				require.Equal(t, version, u.AuthVersion)
			}
		}
	}
}

func TestFeedFromACompactedRevisionFails(t *testing.T) {
	l := newLeader(t, watch.Config{RingEvents: 1})
	c := newClient(t, serve(t, newService(l), l))
	for rev := int64(1); rev <= 9; rev++ {
		l.commit(put(rev, 0, 1))
	}
	l.compacted(5)
	var compacted *watch.CompactedError
	require.ErrorAs(t, failure(follow(t, c, 4)), &compacted)
	require.EqualValues(t, 5, compacted.Revision)
	require.Len(t, until(t, follow(t, c, 5), 9), 5)
}

func TestMemberThatDoesNotLeadReturnsErrNotLeader(t *testing.T) {
	l := newLeader(t, watch.Config{})
	c := newClient(t, serve(t, newService(l), l))
	l.commit(put(1, 0, 1))
	p, err := c.Position(testContext(t))
	require.NoError(t, err)
	require.Equal(t, replica.Update{Term: term, Revision: 1, CompactRevision: -1}, p)
	f := follow(t, c, 1)
	require.Len(t, until(t, f, 1), 1)

	l.deposed()
	require.ErrorIs(t, failure(f), ErrNotLeader, "a feed ends with the leadership")
	require.ErrorIs(t, failure(follow(t, c, 1)), ErrNotLeader)
	_, err = c.Position(testContext(t))
	require.ErrorIs(t, err, ErrNotLeader)
}

func TestAFeedEndsWithTheHub(t *testing.T) {
	l := newLeader(t, watch.Config{})
	c := newClient(t, serve(t, newService(l), l))
	f := follow(t, c, 1)
	_, err := f.Next()
	require.NoError(t, err)
	l.hub.Close()
	require.ErrorIs(t, failure(f), ErrNotLeader)
}

func TestFeedBeyondTheVisibleRevisionReturnsErrAhead(t *testing.T) {
	l := newLeader(t, watch.Config{})
	c := newClient(t, serve(t, newService(l), l))
	l.commit(put(1, 0, 1))
	require.ErrorIs(t, failure(follow(t, c, 3)), ErrAhead)
	_, err := c.Follow(testContext(t), 0)
	require.Error(t, err)
}

func TestFeedEndsWithCloseOrItsContext(t *testing.T) {
	l := newLeader(t, watch.Config{})
	c := newClient(t, serve(t, newService(l), l))
	ctx, cancel := context.WithCancel(testContext(t))
	f, err := c.Follow(ctx, 1)
	require.NoError(t, err)
	_, err = f.Next()
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, failure(f), context.Canceled)

	f = follow(t, c, 1)
	_, err = f.Next()
	require.NoError(t, err)
	ended := make(chan error)
	go func() { ended <- failure(f) }()
	f.Close()
	require.ErrorIs(t, <-ended, context.Canceled)
}

func TestSilenceEndsAFeed(t *testing.T) {
	l := newLeader(t, watch.Config{})
	l.pace = time.Hour
	c := newClient(t, serve(t, newService(l), l))
	f := follow(t, c, 1)
	require.False(t, f.watchdog.Stop(), "a caller that does not listen is no silent leader")
	_, err := f.Next()
	require.NoError(t, err)
	require.False(t, f.watchdog.Stop())
	c.silence = 50 * time.Millisecond // only now: opening it, and the first update, may take longer
	_, err = f.Next()
	require.ErrorIs(t, err, ErrSilent)
	require.ErrorContains(t, err, "for 1h0m0s", "as it was when the feed was opened")
	_, err = f.Next()
	require.Error(t, err, "after an error the feed has ended")
}

func TestSilenceEndsOpeningAFeed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts no connection
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	c := newClient(t, "http://"+l.Addr().String())
	c.silence = 50 * time.Millisecond
	_, err = c.Follow(testContext(t), 1)
	require.ErrorIs(t, err, ErrSilent)
	require.NotErrorIs(t, err, link.ErrRefused)
}

// scripted is a leader that sends what a test wants.
type scripted struct {
	feedpb.PeerServer
	messages []*feedpb.Update
}

func (s scripted) Follow(_ *feedpb.FollowRequest, stream grpc.ServerStreamingServer[feedpb.Update]) error {
	for _, m := range s.messages {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}

func TestMalformedFeedsFail(t *testing.T) {
	message := func(complete int64, revisions ...int64) *feedpb.Update {
		m := &feedpb.Update{Protocol: member.Protocol, Position: &feedpb.Position{Revision: complete}}
		for _, rev := range revisions {
			m.Events = append(m.Events, &feedpb.Event{Kv: &feedpb.Event_KeyValue{ModRevision: rev}})
		}
		return m
	}
	for name, messages := range map[string][]*feedpb.Update{
		"an event from before the start": {message(9, 4)},
		"an event twice":                 {message(6, 5, 6), message(6, 6)},
		"events in disorder":             {message(9, 7, 6)},
		"an incomplete revision":         {message(6, 5, 7)},
		"progress that goes back":        {message(6, 5, 6), message(5)},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeader(t, watch.Config{})
			c := newClient(t, serve(t, scripted{messages: messages}, l))
			require.ErrorIs(t, failure(follow(t, c, 5)), ErrMalformed)
		})
	}
	l := newLeader(t, watch.Config{})
	c := newClient(t, serve(t, scripted{messages: []*feedpb.Update{message(4)}}, l))
	require.ErrorContains(t, failure(follow(t, c, 5)), "unexpected EOF", "a feed does not end without a reason")
}

func TestOtherErrorsAreReturned(t *testing.T) {
	l := newLeader(t, watch.Config{})
	c := newClient(t, serve(t, newService(l), l))
	l.err = mvcc.ErrTimeout
	_, err := c.Position(testContext(t))
	require.ErrorContains(t, err, "request timed out")
	require.ErrorContains(t, failure(follow(t, c, 1)), "request timed out")
}

func TestErrorsOfTheLinkAreReturned(t *testing.T) {
	l := newLeader(t, watch.Config{})
	for want, c := range map[error]*Client{
		link.ErrRefused:   newClient(t, fmt.Sprintf("http://127.0.0.1:%d", enginetest.FreePort(t))),
		link.ErrOtherNode: clientOf(newMember(t, memberID+1, serve(t, newService(l), l))),
	} {
		_, err := c.Position(testContext(t))
		require.ErrorIs(t, err, want)
		f, err := c.Follow(testContext(t), 1)
		if err == nil {
			err = failure(f)
		}
		require.ErrorIs(t, err, want)
	}
}

// TestMembersOfOtherProtocolsRefuseAFeed: the leader, or a follower whose leader does not look at protocols.
func TestMembersOfOtherProtocolsRefuseAFeed(t *testing.T) {
	l := newLeader(t, watch.Config{})
	s := newService(l)
	c := newClient(t, serve(t, s, l))
	s.protocol = c.protocol + 1
	err := failure(follow(t, c, 1))
	require.ErrorContains(t, err, "the leader refuses the feed")
	require.ErrorContains(t, err, "it has protocol 2, and this program 1; upgrade this program")

	c.protocol = s.protocol
	_, err = follow(t, c, 1).Next()
	require.NoError(t, err)

	other := newClient(t, serve(t, scripted{messages: []*feedpb.Update{{Protocol: 3, Position: &feedpb.Position{}}}}, l))
	err = failure(follow(t, other, 1))
	require.ErrorIs(t, err, member.ErrProtocol)
	require.ErrorContains(t, err, "it has protocol 3, and this program 1; upgrade this program")
}
