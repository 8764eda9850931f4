package server

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/cluster/feed"
	"github.com/sqlbrain/sqlbrain/server/cluster/feed/feedpb"
	"github.com/sqlbrain/sqlbrain/server/cluster/link"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/watch"
)

// noHistory is the watch.Source of a hub whose watchers never need to catch up.
type noHistory struct{}

func (noHistory) Changes(_ context.Context, _, _ []byte, _, to int64, _ int) ([]*watch.Event, int64, error) {
	return nil, to + 1, nil
}

func (noHistory) Versions(_ context.Context, keys [][]byte, _ []int64) ([]*coder.Record, error) {
	return make([]*coder.Record, len(keys)), nil
}

// peerNode leads, on a hub without events.
type peerNode struct {
	*fakeNode
	hub *watch.Hub
}

func (n peerNode) Position(context.Context) (replica.Update, error) {
	return replica.Update{Term: fakeTerm, Revision: fakeRevision}, nil
}
func (n peerNode) Stream() (*watch.Stream, error) { return n.hub.NewStream(), nil }
func (n peerNode) CompactRevision() int64         { return 0 }
func (n peerNode) KeepsLock() bool                { return true }
func (n peerNode) HeartbeatPeriod() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), timing.FeedHeartbeat)
	context.AfterFunc(ctx, cancel)
	return ctx
}

func (n peerNode) FeedEnded()                                       {}
func (n peerNode) RecordLoss(context.Context, coder.DataLoss) error { return nil }
func (n peerNode) AuthVersion() int64                               { return 0 }
func (n peerNode) LeadershipEnded() <-chan struct{}                 { return nil }

// memberTable is a table of members that does not change.
type memberTable []member.Member

func (m memberTable) Cached() []member.Member     { return m }
func (memberTable) Refresh(context.Context) error { return nil }

// sharedPeers is the security of members that all have the same certificate.
var sharedPeers = sync.OnceValue(func() *link.Security {
	own := must(link.NewCertificate(tlsfiles.Config{}, slog.New(slog.DiscardHandler)))
	var members memberTable
	for id := range uint64(100) {
		members = append(members, member.Member{ID: id, Fingerprint: own.Fingerprint()})
	}
	return link.NewSecurity(link.SecurityConfig{Certificate: own, Members: members})
})

// newWithPeers returns a server with a peer port that is not running.
func newWithPeers(t *testing.T, n *fakeNode, change ...func(*Config)) *Server {
	t.Helper()
	hub := watch.NewHub(noHistory{}, fakeRevision, 0, watch.DefaultConfig())
	t.Cleanup(hub.Close)
	cfg := testConfig(t)
	cfg.PeerURLs = []string{loopback}
	cfg.PeerNode, cfg.PeerCredentials = peerNode{n, hub}, sharedPeers().Accept()
	for _, c := range change {
		c(&cfg)
	}
	s, err := newServer(cfg, nodeOfFake(n, nil))
	require.NoError(t, err)
	return s
}

func startWithPeers(t *testing.T, n *fakeNode, change ...func(*Config)) *Server {
	t.Helper()
	s := newWithPeers(t, n, change...)
	runServer(t, s)
	return s
}

// peerClient returns a client for the member id at urls.
func peerClient(t *testing.T, id uint64, urls []string, change ...func(*link.Config)) *link.Client {
	t.Helper()
	cfg := link.Config{ClusterID: fakeCluster, Security: sharedPeers()}
	for _, c := range change {
		c(&cfg)
	}
	p := link.NewPool(cfg)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return must(p.Member(id, urls))
}

func TestPeersReachAMemberOnItsPeerURLs(t *testing.T) {
	n := &fakeNode{id: 44, leases: []int64{3}}
	s := newWithPeers(t, n)
	require.Len(t, peerURLs(s), 1)
	require.NotContains(t, peerURLs(s)[0], ":0", "the real port is known before the server runs")
	runServer(t, s)
	c := peerClient(t, 44, peerURLs(s))
	p, err := feedpb.NewPeerClient(c.Conn()).Position(testContext(t), &feedpb.PositionRequest{})
	require.NoError(t, err)
	require.EqualValues(t, 44, p.Position.MemberId)
	r, err := pb.NewLeaseClient(c.Conn()).LeaseLeases(testContext(t), &pb.LeaseLeasesRequest{})
	require.NoError(t, err)
	require.Len(t, r.Leases, 1)
}

func TestNoPeerListenerWithoutANodeOrURLs(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no node": func(c *Config) { c.PeerNode = nil },
		"no URL":  func(c *Config) { c.PeerURLs = nil },
	} {
		t.Run(name, func(t *testing.T) {
			require.Empty(t, peerURLs(startWithPeers(t, &fakeNode{}, change)))
		})
	}
}

func TestThePeerPortIsForMembersOnly(t *testing.T) {
	s := startWithPeers(t, &fakeNode{id: 44})
	conn, err := grpc.NewClient(strings.TrimPrefix(peerURLs(s)[0], "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = pb.NewKVClient(conn).Range(testContext(t), &pb.RangeRequest{Key: key})
	require.Equal(t, codes.Unavailable, status.Code(err), err)
	_, err = pb.NewLeaseClient(peerClient(t, 45, peerURLs(s)).Conn()).LeaseLeases(testContext(t), &pb.LeaseLeasesRequest{})
	requireStatus(t, err, codes.FailedPrecondition, "meant for another member of the cluster")
}

func TestPeerThatDoesNotLeadMarksItsRefusal(t *testing.T) {
	n := &fakeNode{id: 44, err: mvcc.ErrNotLeader}
	router := &fakeRouter{t: t}
	s := startWithPeers(t, n, func(c *Config) { c.Router = router })
	conn := peerClient(t, 44, peerURLs(s)).Conn()
	var trailer metadata.MD
	_, err := pb.NewKVClient(conn).Put(testContext(t), &pb.PutRequest{Key: key}, grpc.Trailer(&trailer))
	require.Equal(t, rpctypes.ErrGRPCNotLeader.Error(), err.Error())
	require.NotEmpty(t, trailer.Get(link.MetadataPrefix+"not-leader"))
	require.True(t, link.Answered(trailer))
	require.False(t, link.Misdirected(trailer))

	st, err := pb.NewLeaseClient(conn).LeaseKeepAlive(testContext(t))
	require.NoError(t, err)
	require.NoError(t, st.Send(&pb.LeaseKeepAliveRequest{ID: 1}))
	_, err = st.Recv()
	require.Equal(t, rpctypes.ErrGRPCNotLeader.Error(), err.Error())
	require.Zero(t, router.asked(), "nothing is forwarded twice")
}

func TestPeerURLsOfAnySchemeHaveTheSameCredentials(t *testing.T) {
	s := startWithPeers(t, &fakeNode{id: 44}, func(c *Config) {
		c.PeerURLs = []string{loopbackTLS, loopback}
	})
	for _, url := range peerURLs(s) {
		_, err := feed.NewClient(peerClient(t, 44, []string{strings.Replace(url, "https:", "http:", 1)})).Position(
			testContext(t))
		require.NoError(t, err)
	}

	requireRefused(t, "needs credentials", func(c *Config) { c.PeerURLs, c.PeerNode = []string{loopbackTLS}, peerNode{} })
}

func TestStopEndsFeeds(t *testing.T) {
	s := newWithPeers(t, &fakeNode{id: 44})
	stop := runServer(t, s)
	c := feed.NewClient(peerClient(t, 44, peerURLs(s)))
	var f *feed.Feed
	// a busy server is silent for longer than a feed may be
	eventually.Nil(t, eventually.Deadline, func(context.Context) (err error) {
		if f, err = c.Follow(testContext(t), fakeRevision+1); err != nil {
			return err
		}
		if _, err = f.Next(); err != nil {
			f.Close()
		}
		return err
	})
	stop()
	var err error
	for err == nil {
		_, err = f.Next()
	}
	require.ErrorContains(t, err, "server stopped")
}

// gRPC waits for connections that say nothing, for much longer than a stop may take.
func TestAMutePeerDoesNotKeepAServerFromStopping(t *testing.T) {
	s := newWithPeers(t, &fakeNode{id: 44}, func(c *Config) {
		c.StopTimeout = 20 * time.Millisecond
		c.headTimeout = time.Hour // after that gRPC would give the connection up by itself
	})
	stop := runServer(t, s)
	mute, err := net.Dial("tcp", strings.TrimPrefix(peerURLs(s)[0], "http://"))
	require.NoError(t, err)
	defer func() { _ = mute.Close() }()
	_, err = feed.NewClient(peerClient(t, 44, peerURLs(s))).Position(testContext(t))
	require.NoError(t, err, "a later connection was accepted, so the mute one was")
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(eventually.Deadline):
		t.Error("the server waits for a connection that says nothing")
		require.NoError(t, mute.Close())
		<-stopped
	}
}
