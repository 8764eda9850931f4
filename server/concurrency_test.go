package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	epb "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/etcd"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// watched reads and writes with a replica, and reports what the services call.
type watched struct {
	etcd.Reader
	etcd.Writer
	waits     chan struct{}        // a call looks whom it has to wait for
	deletions chan context.Context // of each deletion
}

func (w watched) Range(ctx context.Context, as auth.Permit, r *mvcc.RangeRequest,
	linearizable bool) (*mvcc.RangeResult, error) {
	if r.MaxCreateRevision > 0 {
		w.waits <- struct{}{}
	}
	return w.Reader.Range(ctx, as, r, linearizable)
}

func (w watched) Txn(ctx context.Context, as auth.Permit, t *mvcc.Txn, linearizable bool) (*mvcc.TxnResult, error) {
	for _, op := range t.Then {
		if op.Delete != nil {
			w.deletions <- ctx
		}
	}
	return w.Writer.Txn(ctx, as, t, linearizable)
}

// startWatched runs a server on a replica that lives until the test ends.
func startWatched(t *testing.T, change ...func(*Config)) (s *Server, w watched, stop func()) {
	w = watched{waits: make(chan struct{}, 10), deletions: make(chan context.Context, 10)}
	s, stop = startOn(t, memstore.New(), replicaConfig(), func(n *node) {
		w.Reader, w.Writer = n.Reader, n.Writer
		n.Reader, n.Writer = w, w
	}, change...)
	return s, w, stop
}

// await returns the first event under prefix from rev on.
func await(t *testing.T, c *clientv3.Client, prefix string, rev int64) *clientv3.Event {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	r := <-c.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(rev))
	require.NotEmpty(t, r.Events)
	return r.Events[0]
}

// queue asks for the lock under a new lease, and returns once the call is in the
// queue. answered gets its result.
func queue(t *testing.T, ctx context.Context, s *Server, c *clientv3.Client,
	name string) (key string, answered <-chan error) {
	t.Helper()
	lease, err := c.Grant(testContext(t), 100)
	require.NoError(t, err)
	now, err := c.Get(testContext(t), "x")
	require.NoError(t, err)
	lock := v3lockpb.NewLockClient(dial(t, s))
	result := make(chan error, 1)
	go func() {
		_, err := lock.Lock(ctx, &v3lockpb.LockRequest{Name: []byte(name), Lease: int64(lease.ID)})
		result <- err
	}()
	key = fmt.Sprintf("%s/%x", name, lease.ID)
	require.Equal(t, key, string(await(t, c, name+"/", now.Header.Revision+1).Kv.Key))
	return key, result
}

// Clients that do not read what they observe cost no memory for each change of the leader's key, and get the newest
// value once they read.
func TestObserversThatDoNotReadCostBoundedMemory(t *testing.T) {
	s := startReplica(t)
	ctx, election := testContext(t), epb.NewElectionClient(dial(t, s))
	// The client itself must not take what it does not read.
	observing := epb.NewElectionClient(dial(t, s, grpc.WithStaticStreamWindowSize(64<<10)))
	lease, err := newClient(t, s).Grant(ctx, 3600) // the server's own would end after a minute
	require.NoError(t, err)
	won, err := election.Campaign(ctx, &epb.CampaignRequest{
		Name: []byte("e"), Value: []byte("first"), Lease: int64(lease.ID)})
	require.NoError(t, err)
	observe := func() epb.Election_ObserveClient {
		observed, err := observing.Observe(ctx, &epb.LeaderRequest{Name: []byte("e")})
		require.NoError(t, err)
		r, err := observed.Recv()
		require.NoError(t, err)
		require.Equal(t, "first", string(r.Kv.Value))
		return observed
	}
	const observers, changes, size = 16, 32, 1 << 20
	var slow []epb.Election_ObserveClient
	for range observers {
		slow = append(slow, observe())
	}
	readUntil := func(observed epb.Election_ObserveClient, last byte) {
		for {
			r, err := observed.Recv()
			require.NoError(t, err)
			if r.Kv.Value[0] == last {
				return
			}
		}
	}
	prompt := observe() // its events pass through the same stream of watches
	before := heap()
	for i := range changes {
		value := bytes.Repeat([]byte{byte('a' + i)}, size)
		_, err := election.Proclaim(ctx, &epb.ProclaimRequest{Leader: won.Leader, Value: value})
		require.NoError(t, err)
		readUntil(prompt, value[0])
	}
	eventually.True(t, "the observers take little memory", func() bool { return heap()-before < observers*changes*size/2 })
	for _, observed := range slow {
		readUntil(observed, byte('a'+changes-1))
	}
}

// heap returns the bytes of live objects.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestLockCallerLeaves: a caller that no longer waits does not block others. Its key is deleted with
// its token.
func TestLockCallerLeaves(t *testing.T) {
	s, n, _ := startWatched(t)
	c := newClient(t, s)
	_, first := queue(t, testContext(t), s, c, "l")
	require.NoError(t, <-first)
	ctx, leave := context.WithCancel(metadata.AppendToOutgoingContext(testContext(t),
		rpctypes.TokenFieldNameGRPC, "secret", rpctypes.TokenFieldNameSwagger, "bearer", rpctypes.MetadataRequireLeaderKey,
		rpctypes.MetadataHasLeader))
	key, second := queue(t, ctx, s, c, "l")
	now, err := c.Get(testContext(t), "x")
	require.NoError(t, err)
	<-n.waits
	leave()
	requireStatus(t, <-second, codes.Canceled, "context canceled")
	gone := await(t, c, "l/", now.Header.Revision+1)
	require.Equal(t, clientv3.EventTypeDelete, gone.Type)
	require.Equal(t, key, string(gone.Kv.Key))
	md, _ := metadata.FromIncomingContext(<-n.deletions)
	require.Equal(t, []string{"secret"}, md.Get(rpctypes.TokenFieldNameGRPC))
	require.Equal(t, []string{"bearer"}, md.Get(rpctypes.TokenFieldNameSwagger))
	require.Empty(t, md.Get(rpctypes.MetadataRequireLeaderKey), "the caller's demand is met by its own call")
}

// TestLockServerStops: calls that wait do not hold up a server that stops, and
// take their keys back before it does.
func TestLockServerStops(t *testing.T) {
	var log bytes.Buffer
	s, n, stop := startWatched(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	c := newClient(t, s)
	holder, first := queue(t, testContext(t), s, c, "l")
	require.NoError(t, <-first)
	_, waits := queue(t, testContext(t), s, c, "l")
	<-n.waits
	election := epb.NewElectionClient(dial(t, s))
	observed, err := election.Observe(testContext(t), &epb.LeaderRequest{Name: []byte("l")})
	require.NoError(t, err)
	_, err = observed.Recv()
	require.NoError(t, err)

	stop()
	requireStatus(t, <-waits, codes.Unavailable, "etcdserver: server stopped")
	_, err = observed.Recv()
	requireStatus(t, err, codes.Unavailable, "etcdserver: server stopped")
	require.NotContains(t, log.String(), "calls were cut")
	require.NotContains(t, log.String(), "WARN")
	left, err := n.Range(testContext(t), auth.System,
		&mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte("l/"), End: []byte("l0")}}, true)
	require.NoError(t, err)
	require.Len(t, left.Records, 1)
	require.Equal(t, holder, string(left.Records[0].Key))
}

// TestLockFewStreams: calls that come through the process's own connection, and
// make others through it, do not wait for themselves.
func TestLockFewStreams(t *testing.T) {
	s := startReplica(t, func(c *Config) { c.MaxConcurrentStreams = 2 })
	ctx := testContext(t)
	lock := func(name string) error {
		body := strings.NewReader(`{"name":"` + base64.StdEncoding.EncodeToString([]byte(name)) + `"}`)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.ClientURLs()[0]+"/v3/lock/lock", body)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			err = errors.New(resp.Status)
		}
		return errors.Join(err, resp.Body.Close())
	}
	const calls = 8
	results := make(chan error, calls)
	for i := range calls {
		go func() { results <- lock(fmt.Sprint("lock ", i)) }()
	}
	for range calls {
		require.NoError(t, <-results)
	}
	http.DefaultClient.CloseIdleConnections()
}

// Calls that wait have a watch, and all share the process's connection to itself.
func TestLocksAreHandedOverWhileOthersObserve(t *testing.T) {
	const streams = 2
	s := startReplica(t, func(c *Config) { c.MaxConcurrentStreams = streams })
	ctx, election := testContext(t), epb.NewElectionClient(dial(t, s))
	won, err := election.Campaign(ctx, &epb.CampaignRequest{Name: []byte("e"), Value: []byte("first")})
	require.NoError(t, err)
	var observers []epb.Election_ObserveClient
	for i := range 2 * streams {
		// A stream of watches each.
		ctx := metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, fmt.Sprint(i))
		observed, err := epb.NewElectionClient(dial(t, s)).Observe(ctx, &epb.LeaderRequest{Name: []byte("e")})
		require.NoError(t, err)
		_, err = observed.Recv()
		require.NoError(t, err)
		observers = append(observers, observed)
	}
	_, err = election.Proclaim(ctx, &epb.ProclaimRequest{Leader: won.Leader, Value: []byte("second")})
	require.NoError(t, err)
	for _, observed := range observers {
		r, err := observed.Recv()
		require.NoError(t, err)
		require.Equal(t, "second", string(r.Kv.Value))
	}

	c := newClient(t, s)
	holder, first := queue(t, ctx, s, c, "l")
	require.NoError(t, <-first)
	_, second := queue(t, ctx, s, c, "l")
	_, err = v3lockpb.NewLockClient(dial(t, s)).Unlock(ctx, &v3lockpb.UnlockRequest{Key: []byte(holder)})
	require.NoError(t, err)
	require.NoError(t, <-second)
}
