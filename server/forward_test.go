package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/server/cluster/link"
	"github.com/sqlbrain/sqlbrain/server/forward"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// fakeRouter answers with what a test wants: one route after the other, the last
// one for ever.
type fakeRouter struct {
	t      *testing.T
	mu     sync.Mutex
	routes []leadership
	n      int
}

// leadership is where the leader is: at conn, here, or nowhere.
type leadership struct {
	conn *grpc.ClientConn
	self bool
	err  error
}

func (r *fakeRouter) Leader(ctx context.Context) (*grpc.ClientConn, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, false, fmt.Errorf("%w: %w", mvcc.ErrNotServing, err)
	}
	r.n++
	if len(r.routes) == 0 {
		r.t.Error("the leader was asked for")
		return nil, false, mvcc.ErrNotServing
	}
	next := r.routes[0]
	if len(r.routes) > 1 {
		r.routes = r.routes[1:]
	}
	return next.conn, next.self, next.err
}

func (r *fakeRouter) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

func (r *fakeRouter) lead(routes ...leadership) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.routes = routes
}

const (
	leaderID   = uint64(44)
	followerID = uint64(55)
)

// pair is a leader, and a follower that clients talk to.
type pair struct {
	leader, follower             *fakeNode
	leaderServer, followerServer *Server
	router                       *fakeRouter
	conn                         *grpc.ClientConn // of a client of the follower
	toLeader                     *grpc.ClientConn
}

func newPair(t *testing.T, change ...func(*Config)) *pair {
	t.Helper()
	p := &pair{
		leader:   &fakeNode{id: leaderID},
		follower: &fakeNode{id: followerID, err: fmt.Errorf("this is a follower: %w", mvcc.ErrNotLeader)},
		router:   &fakeRouter{t: t},
	}
	p.leader.txnResult = mvcc.TxnResult{Revision: 77, Results: []mvcc.OpResult{
		{Put: &mvcc.PutResult{Revision: 77}, Delete: &mvcc.DeleteResult{Revision: 77, Deleted: 3}},
	}}
	p.leaderServer = startWithPeers(t, p.leader)
	p.followerServer = startFollower(t, p.follower, p.router, change...)
	p.toLeader = peerClient(t, leaderID, peerURLs(p.leaderServer)).Conn()
	p.router.lead(leadership{conn: p.toLeader})
	p.conn = dial(t, p.followerServer)
	return p
}

func startFollower(t *testing.T, n *fakeNode, r forward.Router, change ...func(*Config)) *Server {
	t.Helper()
	return startWithPeers(t, n, append([]func(*Config){func(c *Config) { c.Router = r }}, change...)...)
}

func (p *pair) outcomes(name string) float64 {
	return testutil.ToFloat64(p.followerServer.forward.Collectors()[0].(*prometheus.CounterVec).WithLabelValues(name))
}

func TestFollowersForwardCallsOfTheLeader(t *testing.T) {
	p := newPair(t)
	p.leader.lease = lease.Status{ID: 5, GrantedTTL: 60, TTL: 30, Revision: 66}
	p.leader.leases = []int64{5, 6}
	p.leader.raise(quota.Alarm{MemberID: 9, Type: quota.AlarmNoSpace})
	p.leader.rangeResult = mvcc.RangeResult{Revision: 77, Count: 4}
	kv, l, m := pb.NewKVClient(p.conn), pb.NewLeaseClient(p.conn), pb.NewMaintenanceClient(p.conn)
	ctx := testContext(t)
	header := func(revision int64) *pb.ResponseHeader {
		return &pb.ResponseHeader{ClusterId: fakeCluster, MemberId: followerID, RaftTerm: uint64(fakeTerm),
			Revision: revision}
	}
	alarms := []*pb.AlarmMember{{MemberID: 9, Alarm: pb.AlarmType_NOSPACE}}
	for name, c := range map[string]struct {
		call func() (proto.Message, error)
		want proto.Message
	}{
		"put": {func() (proto.Message, error) { return kv.Put(ctx, &pb.PutRequest{Key: key}) },
			&pb.PutResponse{Header: header(77)}},
		"delete": {func() (proto.Message, error) { return kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: key}) },
			&pb.DeleteRangeResponse{Header: header(77), Deleted: 3}},
		"txn": {func() (proto.Message, error) { return kv.Txn(ctx, &pb.TxnRequest{}) }, nil},
		"compact": {func() (proto.Message, error) { return kv.Compact(ctx, &pb.CompactionRequest{Revision: 8}) },
			&pb.CompactionResponse{Header: header(9)}},
		"range": {func() (proto.Message, error) { return kv.Range(ctx, &pb.RangeRequest{Key: key}) },
			&pb.RangeResponse{Header: header(77), Count: 4}},
		"grant": {func() (proto.Message, error) { return l.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 5, TTL: 60}) },
			&pb.LeaseGrantResponse{Header: header(66), ID: 5, TTL: 60}},
		"revoke": {func() (proto.Message, error) { return l.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: 5}) },
			&pb.LeaseRevokeResponse{Header: header(fakeRevision)}},
		"time to live": {func() (proto.Message, error) { return l.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: 5}) },
			&pb.LeaseTimeToLiveResponse{Header: header(fakeRevision), ID: 5, TTL: 30, GrantedTTL: 60}},
		"leases": {func() (proto.Message, error) { return l.LeaseLeases(ctx, &pb.LeaseLeasesRequest{}) },
			&pb.LeaseLeasesResponse{Header: header(fakeRevision), Leases: []*pb.LeaseStatus{{ID: 5}, {ID: 6}}}},
		"list alarms": {func() (proto.Message, error) { return m.Alarm(ctx, &pb.AlarmRequest{}) },
			&pb.AlarmResponse{Header: header(fakeRevision), Alarms: alarms}},
		"raise alarm": {func() (proto.Message, error) {
			return m.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 9, Alarm: pb.AlarmType_NOSPACE})
		}, &pb.AlarmResponse{Header: header(fakeRevision), Alarms: alarms}},
		"disarm alarm": {func() (proto.Message, error) {
			return m.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: 9, Alarm: pb.AlarmType_NOSPACE})
		}, &pb.AlarmResponse{Header: header(fakeRevision)}},
	} {
		t.Run(name, func(t *testing.T) {
			before := p.router.asked()
			got, err := c.call()
			require.NoError(t, err)
			require.Equal(t, before+1, p.router.asked())
			if c.want != nil {
				require.True(t, proto.Equal(c.want, got), "%v", got)
			}
		})
	}
}

func TestTheLeaderGetsTheCallersMetadataAndDeadline(t *testing.T) {
	p := newPair(t, func(c *Config) { c.RequestTimeout = 5 * time.Hour })
	seen := make(chan context.Context, 1)
	p.leader.onTxn = func(ctx context.Context) error { seen <- ctx; return nil }
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "token", "secret", "authorization", "other", "sqlbrain-user-bin", "root",
		rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader,
		"binary-bin", "\x00\xff", link.MetadataPrefix+"forwarded-for", "somebody else", "sqlbrain-cluster", "ff",
		link.MetadataPrefix+"not-leader", "true")
	var client grpcpeer.Peer
	_, err := pb.NewKVClient(p.conn).Put(ctx, &pb.PutRequest{Key: key}, grpc.Peer(&client))
	require.NoError(t, err)
	at := <-seen
	md, _ := metadata.FromIncomingContext(at)
	require.Empty(t, md.Get("token"), "who the caller is, not what proves it")
	require.Empty(t, md.Get("authorization"))
	require.Equal(t, []string{"\x00\xff"}, md.Get("binary-bin"))
	require.Equal(t, []string{rpctypes.MetadataHasLeader}, md.Get(rpctypes.MetadataRequireLeaderKey))
	require.Equal(t, []string{client.LocalAddr.String()}, md.Get(link.MetadataPrefix+"forwarded-for"))
	require.Equal(t, []string{"37"}, md.Get(link.MetadataPrefix+"forwarded-by"))
	require.Empty(t, md.Get(link.MetadataPrefix+"not-leader"), "what nodes say to each other is not taken from clients")
	require.Equal(t, []string{"b"}, md.Get("sqlbrain-cluster"))
	require.Empty(t, md.Get("sqlbrain-user-bin"))
	want, _ := ctx.Deadline()
	got, ok := at.Deadline()
	require.True(t, ok)
	require.WithinDuration(t, want, got, time.Hour, "not the server's own bound, which is later")
}

// gRPC's clients refuse to send some of what its servers receive. That must not fail the call of a client of a
// follower.
func TestMetadataThatCannotBeSentIsNotForwarded(t *testing.T) {
	p := newPair(t)
	seen := make(chan context.Context, 1)
	p.leader.onTxn = func(ctx context.Context) error { seen <- ctx; return nil }
	message, err := proto.Marshal(&pb.PutRequest{Key: key})
	require.NoError(t, err)
	body := append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
	r, err := http.NewRequestWithContext(testContext(t), http.MethodPost,
		p.followerServer.ClientURLs()[0]+pb.KV_Put_FullMethodName, bytes.NewReader(body))
	require.NoError(t, err)
	r.Header = http.Header{
		"Content-Type": {"application/grpc"}, "Te": {"trailers"},
		"X-Client-Name": {"J\u00fcrgen"}, "X-Tab": {"a\tb"}, "X-Mark!": {"x"}, "X-Plain": {"plain"}, "X-Raw-Bin": {"/w=="},
	}
	client := &http.Transport{Protocols: new(http.Protocols)}
	client.Protocols.SetUnencryptedHTTP2(true)
	defer client.CloseIdleConnections()
	resp, err := client.RoundTrip(r)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "0", cmp.Or(resp.Trailer.Get("Grpc-Status"), resp.Header.Get("Grpc-Status")), "%v", resp.Trailer)
	md, _ := metadata.FromIncomingContext(<-seen)
	require.Equal(t, []string{"plain"}, md.Get("x-plain"))
	require.Equal(t, []string{"\xff"}, md.Get("x-raw-bin"))
	for _, key := range []string{"x-client-name", "x-tab", "x-mark!"} {
		require.Empty(t, md.Get(key))
	}
}

func TestErrorOfTheLeaderIsReturned(t *testing.T) {
	p := newPair(t)
	executed := 0
	p.leader.onTxn = func(context.Context) error { executed++; return quota.ErrNoSpace }
	_, err := pb.NewKVClient(p.conn).Put(testContext(t), &pb.PutRequest{Key: key})
	require.Equal(t, rpctypes.ErrGRPCNoSpace.Error(), err.Error())
	// Unavailable, but in the leader's words.
	p.leader.onTxn = func(context.Context) error { executed++; return mvcc.ErrTimeout }
	_, err = pb.NewKVClient(p.conn).Put(testContext(t), &pb.PutRequest{Key: key})
	require.Equal(t, rpctypes.ErrGRPCTimeout.Error(), err.Error())
	require.Equal(t, 2, executed)
	require.EqualValues(t, 2, p.outcomes("answered"))
}

func TestCallIsRepeatedAtTheNextLeader(t *testing.T) {
	gone := fmt.Sprintf("http://127.0.0.1:%d", enginetest.FreePort(t))
	p := newPair(t)
	other := startFollower(t, &fakeNode{id: 66, err: mvcc.ErrNotLeader}, &fakeRouter{t: t})
	executed := 0
	p.leader.onTxn = func(context.Context) error { executed++; return nil }
	p.router.lead(
		leadership{conn: peerClient(t, 66, peerURLs(other)).Conn()},      // does not lead
		leadership{conn: peerClient(t, leaderID, []string{gone}).Conn()}, // is gone
		leadership{conn: peerClient(t, 67, peerURLs(other)).Conn()},      // is another member
		leadership{self: true}, // lost it again
		leadership{conn: p.toLeader},
	)
	_, err := pb.NewKVClient(p.conn).Put(testContext(t), &pb.PutRequest{Key: key})
	require.NoError(t, err)
	require.Equal(t, 5, p.router.asked())
	require.Equal(t, 1, executed)
	require.EqualValues(t, 3, p.outcomes("repeated"))
	require.EqualValues(t, 1, p.outcomes("answered"))
}

func TestNodeThatBecameLeaderAnswersTheCallItself(t *testing.T) {
	p := newPair(t)
	tried := 0
	p.follower.txnResult = p.leader.txnResult
	p.follower.onTxn = func(context.Context) error {
		if tried++; tried == 2 {
			p.follower.setErr(nil)
		}
		return nil
	}
	p.router.lead(leadership{self: true})
	r, err := pb.NewKVClient(p.conn).Put(testContext(t), &pb.PutRequest{Key: key})
	require.NoError(t, err)
	require.Equal(t, followerID, r.Header.MemberId)
	require.Equal(t, 2, tried)
	require.Equal(t, 1, p.router.asked())
}

func TestAWriteWhoseAnswerIsLostIsNotRepeated(t *testing.T) {
	p := newPair(t)
	var executed atomic.Int32 // nothing comes back of the call that would order it
	p.leader.onTxn = func(ctx context.Context) error {
		if executed.Add(1) > 1 {
			return nil
		}
		p.leaderServer.peerConns.Cut()
		<-ctx.Done()
		return ctx.Err()
	}
	_, err := pb.NewKVClient(p.conn).Put(testContext(t), &pb.PutRequest{Key: key})
	require.EqualError(t, err, rpctypes.ErrGRPCLeaderChanged.Error())
	require.EqualValues(t, 1, executed.Load())
	require.Equal(t, 1, p.router.asked())
	require.EqualValues(t, 1, p.outcomes("lost"))
}

func TestAReadWhoseAnswerIsLostIsRepeated(t *testing.T) {
	for name, fail := range map[string]func(*pair) error{
		"connection cut": func(p *pair) error { p.leaderServer.peerConns.Cut(); return nil },
		"leader changed": func(*pair) error { return mvcc.ErrLeaderLost },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			p.leader.lease = lease.Status{TTL: 5}
			var mu sync.Mutex
			asked := 0
			p.leader.onLookUp = func() error {
				mu.Lock()
				defer mu.Unlock()
				if asked++; asked == 1 {
					return fail(p)
				}
				return nil
			}
			r, err := pb.NewLeaseClient(p.conn).LeaseTimeToLive(testContext(t), &pb.LeaseTimeToLiveRequest{ID: 1})
			require.NoError(t, err)
			require.EqualValues(t, 5, r.TTL)
			require.EqualValues(t, 1, p.outcomes("repeated"))
		})
	}
}

func TestCallToASilentLeaderTimesOut(t *testing.T) {
	p := newPair(t, func(c *Config) { c.RequestTimeout = 100 * time.Millisecond })
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	p.leader.onTxn = hang
	_, err := pb.NewKVClient(p.conn).Put(testContext(t), &pb.PutRequest{Key: key})
	require.Equal(t, rpctypes.ErrGRPCTimeout.Error(), err.Error(), "the bound is the server's, not the client's")

	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = pb.NewKVClient(p.conn).Put(ctx, &pb.PutRequest{Key: key})
	requireStatus(t, err, codes.DeadlineExceeded, "")
}

// A read that the leader does not answer is repeated in time, at the current leader.
func TestReadIsRepeatedIfTheLeaderIsSilent(t *testing.T) {
	p := newPair(t, func(c *Config) { c.RequestTimeout, c.readAttempt = time.Hour, 500*time.Millisecond })
	held := make(chan struct{})
	defer close(held)
	p.leader.onLookUp = func() error { <-held; return nil }
	second := &fakeNode{id: 77, lease: lease.Status{TTL: 9}}
	s := startWithPeers(t, second)
	p.router.lead(leadership{conn: p.toLeader}, leadership{conn: peerClient(t, 77, peerURLs(s)).Conn()})
	r, err := pb.NewLeaseClient(p.conn).LeaseTimeToLive(testContext(t), &pb.LeaseTimeToLiveRequest{ID: 1})
	require.NoError(t, err)
	require.EqualValues(t, 9, r.TTL)
}

func TestCallWithoutALeaderReturnsNoLeader(t *testing.T) {
	p := newPair(t)
	p.router.lead(leadership{err: fmt.Errorf("%w: no leader", mvcc.ErrNotServing)})
	_, err := pb.NewKVClient(p.conn).Put(testContext(t), &pb.PutRequest{Key: key})
	require.Equal(t, rpctypes.ErrGRPCNoLeader.Error(), err.Error())

	p = newPair(t, func(c *Config) { c.RequestTimeout = 50 * time.Millisecond })
	p.router.lead(leadership{self: true}) // and it does not
	_, err = pb.NewKVClient(p.conn).Put(testContext(t), &pb.PutRequest{Key: key})
	require.Contains(t, []string{rpctypes.ErrGRPCTimeout.Error(), rpctypes.ErrGRPCNoLeader.Error()}, err.Error())
}

func TestAPhysicalCompactionMayTakeLonger(t *testing.T) {
	p := newPair(t)
	bounded := make(chan bool, 1)
	p.leader.onCompact = func(ctx context.Context) {
		_, ok := ctx.Deadline()
		bounded <- ok
	}
	for _, physical := range []bool{false, true} {
		_, err := pb.NewKVClient(p.conn).Compact(context.Background(), &pb.CompactionRequest{Revision: 5, Physical: physical})
		require.NoError(t, err)
		require.Equal(t, !physical, <-bounded)
	}
}

func TestErrorsOfTheNodeItselfAreNotForwarded(t *testing.T) {
	p := newPair(t)
	p.follower.setErr(errors.New("something else"))
	_, err := pb.NewKVClient(p.conn).Put(testContext(t), &pb.PutRequest{Key: key})
	requireStatus(t, err, codes.Internal, "")
	_, err = pb.NewKVClient(p.conn).Put(testContext(t), &pb.PutRequest{})
	require.Equal(t, rpctypes.ErrGRPCEmptyKey.Error(), err.Error())
	require.Zero(t, p.router.asked())
}

func TestAKeepAliveStreamOutlivesItsLeader(t *testing.T) {
	p := newPair(t)
	second := &fakeNode{id: 77}
	toSecond := peerClient(t, 77, peerURLs(startWithPeers(t, second))).Conn()
	p.leader.onRenew = func(id int64) (int64, error) { return 100 + id, nil }
	second.onRenew = func(id int64) (int64, error) {
		if id == 13 {
			return 0, mvcc.ErrLeaseNotFound
		}
		return 200 + id, nil
	}
	st, err := pb.NewLeaseClient(p.conn).LeaseKeepAlive(testContext(t))
	require.NoError(t, err)
	renew := func(from, to int64) (ttls []int64) {
		for id := from; id <= to; id++ {
			require.NoError(t, st.Send(&pb.LeaseKeepAliveRequest{ID: id}))
		}
		for id := from; id <= to; id++ {
			r, err := st.Recv()
			require.NoError(t, err)
			require.Equal(t, id, r.ID, "answers keep their order")
			require.Equal(t, followerID, r.Header.MemberId)
			ttls = append(ttls, r.TTL)
		}
		return ttls
	}
	require.Equal(t, []int64{101, 102, 103}, renew(1, 3))

	p.leader.onRenew = nil
	p.leader.setErr(mvcc.ErrNotLeader) // and the router learns it after a moment
	p.router.lead(leadership{conn: p.toLeader}, leadership{conn: p.toLeader}, leadership{conn: toSecond})
	require.Equal(t, []int64{204, 205}, renew(4, 5))
	require.Equal(t, []int64{212, 0, 214}, renew(12, 14))

	p.follower.setErr(nil)
	p.follower.lease.GrantedTTL = 9
	require.Equal(t, []int64{9}, renew(6, 6), "it leads itself now")

	p.follower.setErr(mvcc.ErrNotLeader)
	p.router.lead(leadership{err: mvcc.ErrNotServing})
	require.NoError(t, st.Send(&pb.LeaseKeepAliveRequest{ID: 7}))
	_, err = st.Recv()
	require.Equal(t, rpctypes.ErrGRPCNoLeader.Error(), err.Error())
}

func TestNodeWithoutARouterReturnsNotLeader(t *testing.T) {
	s := startFake(t, &fakeNode{err: mvcc.ErrNotLeader}, nil)
	_, err := pb.NewKVClient(dial(t, s)).Put(testContext(t), &pb.PutRequest{Key: key})
	require.Equal(t, rpctypes.ErrGRPCNotLeader.Error(), err.Error())
}
