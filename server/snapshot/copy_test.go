package snapshot

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/repair"
)

// leased is a server with one key, attached to the lease id.
type leased struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
	id  int64
	ttl func() (*pb.LeaseTimeToLiveResponse, error)
}

func (s *leased) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	resp := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 2}}
	if string(r.Key) <= "/k" && string(r.RangeEnd) > "/k" {
		resp.Kvs = []*mvccpb.KeyValue{{Key: []byte("/k"), CreateRevision: 2, ModRevision: 2, Version: 1, Lease: s.id}}
		resp.Count = 1
	}
	return resp, nil
}

func (s *leased) LeaseTimeToLive(context.Context, *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	return s.ttl()
}

// client returns a client of s.
func (s *leased) client(t *testing.T) *clientv3.Client {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := grpc.NewServer()
	pb.RegisterKVServer(g, s)
	pb.RegisterLeaseServer(g, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(l)
	}()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{l.Addr().String()}, MaxUnaryRetries: 3})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		g.Stop()
		<-done
	})
	return c
}

// TestCopyOfLeases: a server without TTLs has the TTL for an id. A failure does not say that.
func TestCopyOfLeases(t *testing.T) {
	const id = 1 << 50 // no TTL
	calls := 0
	for name, c := range map[string]struct {
		id     int64
		answer func() (int64, error)
		failed string
	}{
		"granted": {id: id, answer: func() (int64, error) { return 100, nil }},
		"kine": {id: 300, answer: func() (int64, error) {
			return 0,
				errors.New("lease time to live is not supported")
		}},
		"no such call": {id: 300, answer: func() (int64, error) {
			return 0,
				status.Error(codes.Unimplemented, "unknown method")
		}},
		"passing failure": {id: id, answer: func() (int64, error) {
			if calls++; calls == 1 {
				return 0, rpctypes.ErrGRPCLeaderChanged
			}
			return 100, nil
		}},
		"lasting failure": {id: id, answer: func() (int64, error) { return 0, rpctypes.ErrGRPCLeaderChanged },
			failed: "leader changed"},
		"other failure": {id: 300, answer: func() (int64, error) { return 0, errors.New("broken") }, failed: "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			from := leased{id: c.id, ttl: func() (*pb.LeaseTimeToLiveResponse, error) {
				ttl, err := c.answer()
				return &pb.LeaseTimeToLiveResponse{ID: c.id, TTL: ttl, GrantedTTL: ttl}, err
			}}
			loaded, err := Copy(t.Context(), from.client(t), newStore(t), "/", LoadOptions{})
			if c.failed != "" {
				require.ErrorContains(t, err, c.failed)
				return
			}
			require.NoError(t, err)
			require.Equal(t, 1, loaded.Leases)
		})
	}
}

// TestKeyOfALeaseThatIsGrantedAgain: a key keeps the id of a lease that is not restored. When another lease of that
// id is granted, and the key is attached to it, it ends with that.
func TestKeyOfALeaseThatIsGrantedAgain(t *testing.T) {
	const id = 1 << 50
	store := newStore(t)
	_, err := Copy(t.Context(), (&leased{id: id, ttl: func() (*pb.LeaseTimeToLiveResponse, error) {
		return &pb.LeaseTimeToLiveResponse{ID: id, TTL: -1}, nil
	}}).client(t), store, "/", LoadOptions{})
	require.NoError(t, err)
	b := serve(t, store)
	_, err = lessor(t, b).Grant(t.Context(), auth.System, id, 1000)
	require.NoError(t, err)
	mustTxn(t, b, put("/k", "again", id))
	_, err = lessor(t, b).Revoke(t.Context(), auth.System, id)
	require.NoError(t, err)
	got, err := b.Reader.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: everything}, true)
	require.NoError(t, err)
	require.Zero(t, got.Count)
}

// TestCopyOverATableContinuesAboveIt: clients have seen the revisions of the table, and not only those of the server.
func TestCopyOverATableContinuesAboveIt(t *testing.T) {
	from := (&leased{id: 300, ttl: func() (*pb.LeaseTimeToLiveResponse, error) {
		return &pb.LeaseTimeToLiveResponse{ID: 300, TTL: 300, GrantedTTL: 300}, nil
	}}).client(t)
	store := newStore(t)
	l, err := Copy(t.Context(), from, store, "/", LoadOptions{Bump: 50})
	require.NoError(t, err)
	seen := l.Revision
	require.Equal(t, seen, l.CompactRevision)
	_, err = Copy(t.Context(), from, store, "/", LoadOptions{})
	require.ErrorIs(t, err, repair.ErrNotEmpty)
	l, err = Copy(t.Context(), from, store, "/", LoadOptions{Replace: true})
	require.NoError(t, err)
	require.Equal(t, &Loaded{Revision: seen + repair.DefaultBump, CompactRevision: seen + repair.DefaultBump,
		Replaced: seen, Versions: 1, Keys: 1, Leases: 1}, l)
	b := serve(t, store)
	require.Equal(t, l.Revision, b.Revision())
	require.Equal(t, l.Revision+1, mustTxn(t, b, put("/k", "", 0)))
}
