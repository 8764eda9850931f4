package server

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/sqlbrain/sqlbrain/server/tlsfiles/tlstest"
)

// askEverything calls every RPC of etcd's services and returns how each was answered. Requests
// are made so that they pass the checks that need no caller.
func askEverything(t *testing.T, s *Server, conn *grpc.ClientConn, ctx context.Context) map[string]string {
	t.Helper()
	answers := map[string]string{}
	for service, info := range s.grpc.GetServiceInfo() {
		if strings.HasPrefix(service, "grpc.") {
			continue
		}
		for _, m := range info.Methods {
			desc, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + m.Name))
			require.NoError(t, err)
			message := func(d protoreflect.MessageDescriptor) proto.Message {
				mt, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
				require.NoError(t, err)
				return mt.New().Interface()
			}
			method := desc.(protoreflect.MethodDescriptor)
			req, resp := message(method.Input()), message(method.Output())
			for _, field := range []protoreflect.Name{"key", "name"} {
				if f := method.Input().Fields().ByName(field); f != nil && f.Kind() == protoreflect.BytesKind {
					req.ProtoReflect().Set(f, protoreflect.ValueOfBytes([]byte("k")))
				}
			}
			leader := &v3electionpb.LeaderKey{Name: []byte("k"), Key: []byte("k/1"), Rev: 1}
			switch r := req.(type) {
			case *v3electionpb.ProclaimRequest:
				r.Leader = leader
			case *v3electionpb.ResignRequest:
				r.Leader = leader
			case *pb.WatchRequest:
				r.RequestUnion = &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("k")}}
			}
			name := "/" + service + "/" + m.Name
			if !m.IsClientStream && !m.IsServerStream {
				err = conn.Invoke(ctx, name, req, resp)
			} else {
				ctx, cancel := context.WithCancel(ctx)
				stream, serr := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: m.IsServerStream,
					ClientStreams: m.IsClientStream}, name)
				require.NoError(t, serr, name)
				require.NoError(t, stream.SendMsg(req))
				if !m.IsClientStream {
					require.NoError(t, stream.CloseSend())
				}
				err = stream.RecvMsg(resp)
				cancel()
			}
			answers[name] = "answered"
			if err != nil {
				answers[name] = err.Error()
			} else if w, ok := resp.(*pb.WatchResponse); ok && w.Canceled {
				answers[name] = w.CancelReason
			}
		}
	}
	require.Greater(t, len(answers), 40)
	return answers
}

// TestATokenOfAChangedPasswordIsRefusedByEveryCall covers what etcd leaves out: it checks the
// revision of a JWT for keys only.
func TestATokenOfAChangedPasswordIsRefusedByEveryCall(t *testing.T) {
	key := t.TempDir() + "/key"
	tlstest.Replace(t, key, []byte("0123456789abcdef0123456789abcdef"))
	for kind, want := range map[string]error{
		"simple": rpctypes.ErrGRPCInvalidAuthToken,
		"jwt,sign-method=HS256,priv-key=" + key + ",ttl=1h": rpctypes.ErrGRPCAuthOldRevision,
	} {
		name, _, _ := strings.Cut(kind, ",")
		t.Run(name, func(t *testing.T) {
			s := startReplica(t, cheap, func(c *Config) {
				c.AuthToken, c.Console, c.EnableGRPCGateway = kind, true, true
			})
			addUsers(t, newClient(t, s))
			root, conn := clientOf(t, s, "root", "rootpw"), dial(t, s)
			token, old := tokenFor(t, conn, "root", "rootpw")
			_, err := pb.NewMaintenanceClient(conn).HashKV(old, &pb.HashKVRequest{})
			require.NoError(t, err)
			_, err = root.UserChangePassword(testContext(t), "root", "changed")
			require.NoError(t, err)

			const authenticate = "/etcdserverpb.Auth/Authenticate"
			text := rpctypes.ErrorDesc(want)
			for method, answer := range askEverything(t, s, conn, old) {
				switch method {
				case authenticate:
					require.Contains(t, answer, "authentication failed", method)
				case pb.Auth_AuthStatus_FullMethodName:
					// Those who sign JWTs themselves have to learn the revision, as in etcd.
					if name == "jwt" {
						require.Equal(t, "answered", answer)
					}
				case v3electionpb.Election_Observe_FullMethodName:
					require.Equal(t, "EOF", answer) // as in etcd, which does not say why
				default:
					require.Contains(t, answer, text, method)
				}
			}
			for _, path := range []string{"/v3/maintenance/alarm", "/v3/cluster/member/list", "/v3/auth/user/list",
				"/v3/maintenance/snapshot"} {
				_, answer := call(t, s, http.MethodPost, path, "{}", "Authorization", "Bearer "+token)
				require.Contains(t, answer, text, path)
			}
			cookie := "sqlbrain-console=" + base64.RawURLEncoding.EncodeToString([]byte("root")) + ":" + token
			for _, path := range []string{"/ui/api/keys", "/ui/api/access", "/ui/api/status"} {
				_, answer := call(t, s, http.MethodGet, path, "", "Cookie", cookie)
				require.Contains(t, answer, text, path)
			}

			// A new login works, also if the old token is sent with the password.
			resp, err := pb.NewAuthClient(conn).Authenticate(old, &pb.AuthenticateRequest{Name: "root", Password: "changed"})
			require.NoError(t, err)
			require.NotEmpty(t, resp.Token)
		})
	}
}

// TestATokenOfARemovedUserIsRefused: with JWT nothing but the table says that a user is gone.
func TestATokenOfARemovedUserIsRefused(t *testing.T) {
	key := t.TempDir() + "/key"
	tlstest.Replace(t, key, []byte("0123456789abcdef0123456789abcdef"))
	s := startReplica(t, cheap, func(c *Config) { c.AuthToken = "jwt,sign-method=HS256,priv-key=" + key + ",ttl=1h" })
	addUsers(t, newClient(t, s))
	root, conn, ctx := clientOf(t, s, "root", "rootpw"), dial(t, s), testContext(t)
	_, err := root.UserGrantRole(ctx, "ann", "root")
	require.NoError(t, err)
	_, ann := tokenFor(t, conn, "ann", "annpw")
	_, err = root.UserDelete(ctx, "ann")
	require.NoError(t, err)
	for _, call := range []func() error{
		func() error { _, err := pb.NewClusterClient(conn).MemberList(ann, &pb.MemberListRequest{}); return err },
		func() error {
			_, err := pb.NewAuthClient(conn).UserAdd(ann, &pb.AuthUserAddRequest{Name: "x", Password: "p"})
			return err
		},
		func() error { _, err := pb.NewMaintenanceClient(conn).Status(ann, &pb.StatusRequest{}); return err },
	} {
		require.Error(t, call())
	}
	users, err := root.UserList(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"root"}, users.Users)
}

// TestEachCallNeedsItsPermission: a user without a role may call what is listed here, as in etcd.
func TestEachCallNeedsItsPermission(t *testing.T) {
	s := startReplica(t, cheap)
	addUsers(t, newClient(t, s))
	root, conn := clientOf(t, s, "root", "rootpw"), dial(t, s)
	_, err := root.UserAdd(testContext(t), "nobody", "pw")
	require.NoError(t, err)
	_, nobody := tokenFor(t, conn, "nobody", "pw")
	anyUser := map[string]string{
		pb.Auth_AuthStatus_FullMethodName:            "answered",
		pb.Auth_Authenticate_FullMethodName:          "authentication failed",
		pb.Cluster_MemberList_FullMethodName:         "answered",
		pb.KV_Txn_FullMethodName:                     "answered", // of nothing
		pb.Lease_LeaseGrant_FullMethodName:           "answered",
		pb.Lease_LeaseKeepAlive_FullMethodName:       "answered", // of leases that do not exist
		pb.Lease_LeaseLeases_FullMethodName:          "answered",
		pb.Lease_LeaseRevoke_FullMethodName:          "requested lease not found",
		pb.Lease_LeaseTimeToLive_FullMethodName:      "answered",
		pb.Maintenance_Alarm_FullMethodName:          "answered", // the list
		pb.Maintenance_Status_FullMethodName:         "answered",
		v3electionpb.Election_Observe_FullMethodName: "EOF", // as in etcd, which does not say why
	}
	for method, answer := range askEverything(t, s, conn, nobody) {
		want, ok := anyUser[method]
		if !ok {
			want = "permission denied"
		}
		require.Contains(t, answer, want, method)
	}

	// A lease with a key that the user may not write.
	lease, err := root.Grant(testContext(t), 1000)
	require.NoError(t, err)
	_, err = root.Put(testContext(t), "k", "v", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	leases := pb.NewLeaseClient(conn)
	_, err = leases.LeaseRevoke(nobody, &pb.LeaseRevokeRequest{ID: int64(lease.ID)})
	require.ErrorContains(t, err, "permission denied")
	_, err = leases.LeaseTimeToLive(nobody, &pb.LeaseTimeToLiveRequest{ID: int64(lease.ID), Keys: true})
	require.ErrorContains(t, err, "permission denied")
	_, err = pb.NewMaintenanceClient(conn).Alarm(nobody,
		&pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE})
	require.ErrorContains(t, err, "permission denied")
}
