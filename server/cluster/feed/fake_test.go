package feed

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
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
	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/watch"
)

const (
	cluster  = uint64(0xc1)
	memberID = uint64(0xa2)

	term = int64(7)
)

// history is a watch.Source in memory.
type history struct {
	mu      sync.Mutex
	events  []*watch.Event // event i is not of a later revision than event i+1
	compact int64
}

func (h *history) add(events ...*watch.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, events...)
}

func (h *history) Changes(_ context.Context, _, _ []byte, from, to int64, _ int) ([]*watch.Event, int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if from < h.compact {
		return nil, 0, &watch.CompactedError{Revision: h.compact}
	}
	var out []*watch.Event
	for _, e := range h.events {
		rev := e.Record.ModRevision
		if rev < from || rev > to {
			continue
		}
		if len(out) >= 50 && out[len(out)-1].Record.ModRevision != rev {
			return out, rev, nil
		}
		out = append(out, e)
	}
	return out, to + 1, nil
}

func (h *history) Versions(_ context.Context, keys [][]byte, _ []int64) ([]*coder.Record, error) {
	return make([]*coder.Record, len(keys)), nil
}

// leader is a Node on a real hub.
type leader struct {
	lost    coder.DataLoss
	history history
	hub     *watch.Hub
	keeps   atomic.Bool
	ended   atomic.Int64  // feeds
	pace    time.Duration // between heartbeats
	beat    context.Context
	endBeat context.CancelFunc

	mu      sync.Mutex
	at      replica.Update
	err     error
	leading chan struct{}
}

func newLeader(t testing.TB, cfg watch.Config) *leader {
	l := &leader{pace: 20 * time.Millisecond, at: replica.Update{Term: term, CompactRevision: -1},
		leading: make(chan struct{})}
	d := watch.DefaultConfig()
	d.RingEvents, d.QueueEvents = cmp.Or(cfg.RingEvents, d.RingEvents), cmp.Or(cfg.QueueEvents, d.QueueEvents)
	l.hub = watch.NewHub(&l.history, 0, -1, d)
	t.Cleanup(func() {
		l.hub.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.endBeat != nil {
			l.endBeat()
		}
	})
	return l
}

func (l *leader) ClusterID() uint64                { return cluster }
func (l *leader) MemberID() uint64                 { return memberID }
func (l *leader) LeadershipEnded() <-chan struct{} { return l.leading }

func (l *leader) Position(context.Context) (replica.Update, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at, l.err
}

func (l *leader) RecordLoss(_ context.Context, lost coder.DataLoss) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = lost
	return l.err
}

func (l *leader) KeepsLock() bool { return l.keeps.Load() }

func (l *leader) HeartbeatPeriod() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.beat == nil || l.beat.Err() != nil {
		l.beat, l.endBeat = context.WithTimeout(context.Background(), l.pace)
	}
	return l.beat
}

func (l *leader) FeedEnded() { l.ended.Add(1) }

func (l *leader) AuthVersion() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at.AuthVersion
}

func (l *leader) CompactRevision() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at.CompactRevision
}

func (l *leader) Stream() (*watch.Stream, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	return l.hub.NewStream(), nil
}

// commit publishes events, which are of the next revisions.
func (l *leader) commit(events ...*watch.Event) {
	l.history.add(events...)
	visible := events[len(events)-1].Record.ModRevision
	l.mu.Lock()
	l.at.Revision = visible
	l.mu.Unlock()
	l.hub.Publish(events, visible, func() {})
}

func (l *leader) compacted(rev int64) {
	l.history.mu.Lock()
	l.history.compact = rev
	l.history.mu.Unlock()
	l.mu.Lock()
	l.at.CompactRevision = rev
	l.mu.Unlock()
	l.hub.Compact(rev)
}

func (l *leader) deposed() {
	l.mu.Lock()
	l.err = fmt.Errorf("%w any more", mvcc.ErrNotLeader)
	l.mu.Unlock()
	close(l.leading)
}

// put is an event that puts a value of some bytes.
func put(rev int64, sub int32, bytes int) *watch.Event {
	return &watch.Event{PrevRevision: rev / 2, Record: &coder.Record{
		Key: fmt.Appendf(nil, "key%d", sub), Value: make([]byte, bytes), CreateRevision: 1, ModRevision: rev, Version: rev,
		Lease: rev % 3, Sub: sub,
	}}
}

func del(rev int64, sub int32) *watch.Event {
	return &watch.Event{Type: watch.Delete, PrevRevision: rev - 1, Record: &coder.Record{
		Key: fmt.Appendf(nil, "key%d", sub), ModRevision: rev, Sub: sub, Tombstone: true,
	}}
}

// serve runs a gRPC server with the service on the loopback, and returns its URL.
func serve(t testing.TB, s feedpb.PeerServer, id link.Identity) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := grpc.NewServer(grpc.Creds(shared().Accept()), grpc.UnaryInterceptor(link.CheckUnary(id)),
		grpc.StreamInterceptor(link.CheckStream(id)))
	feedpb.RegisterPeerServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		require.NoError(t, <-done)
	})
	return "http://" + l.Addr().String()
}

// newService serves feeds.
func newService(n Node) *service {
	return &service{node: n, protocol: member.Protocol, fragmentBytes: fragmentBytes}
}

// members is a table that does not change.
type members []member.Member

func (m members) Cached() []member.Member     { return m }
func (members) Refresh(context.Context) error { return nil }

// shared is the security of members that all have the same certificate.
var shared = sync.OnceValue(func() *link.Security {
	own, err := link.NewCertificate(tlsfiles.Config{}, slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err)
	}
	return link.NewSecurity(link.SecurityConfig{Certificate: own, Members: members{
		{ID: memberID, Fingerprint: own.Fingerprint()}, {ID: memberID + 1, Fingerprint: own.Fingerprint()},
	}})
})

// newClient returns a client of the member at url.
func newClient(t testing.TB, url string) *Client {
	t.Helper()
	return clientOf(newMember(t, memberID, url))
}

// clientOf returns a client that waits for a leader that is silent because the machine is
// busy.
func clientOf(m *link.Client) *Client {
	c := NewClient(m)
	c.silence = time.Hour
	return c
}

func newMember(t testing.TB, id uint64, url string) *link.Client {
	t.Helper()
	p := link.NewPool(link.Config{ClusterID: cluster, Security: shared()})
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	m, err := p.Member(id, []string{url})
	require.NoError(t, err)
	return m
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Deadline)
	t.Cleanup(cancel)
	return ctx
}

// follow opens a feed that the test closes.
func follow(t testing.TB, c *Client, from int64) *Feed {
	t.Helper()
	f, err := c.Follow(testContext(t), from)
	require.NoError(t, err)
	t.Cleanup(f.Close)
	return f
}

// until reads the feed up to a revision, and returns the events.
func until(t testing.TB, f *Feed, rev int64) (events []*watch.Event) {
	t.Helper()
	for {
		u, err := f.Next()
		require.NoError(t, err)
		events = append(events, u.Events...)
		if u.Revision >= rev {
			return events
		}
	}
}

// failure reads the feed to its end.
func failure(f *Feed) error {
	for {
		if _, err := f.Next(); err != nil {
			return err
		}
	}
}
