package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/server/tlsfiles/tlstest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// cheap makes passwords cheap to check.
func cheap(c *Config) { c.BcryptCost = 4 }

// addUsers makes root, and ann, who may read and write what begins with a/.
func addUsers(t *testing.T, c clientv3.Auth) {
	t.Helper()
	ctx := testContext(t)
	do := func(_ any, err error) { t.Helper(); require.NoError(t, err) }
	do(c.UserAdd(ctx, "root", "rootpw"))
	do(c.UserGrantRole(ctx, "root", "root"))
	do(c.RoleAdd(ctx, "a"))
	do(c.RoleGrantPermission(ctx, "a", "a/", "a0", clientv3.PermissionType(clientv3.PermReadWrite)))
	do(c.UserAdd(ctx, "ann", "annpw"))
	do(c.UserGrantRole(ctx, "ann", "a"))
	do(c.AuthEnable(ctx))
}

func clientOf(t *testing.T, s *Server, user, password string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: s.ClientURLs(), Username: user, Password: password,
		Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// tokenFor returns a token, and a context that brings it.
func tokenFor(t *testing.T, conn *grpc.ClientConn, user, password string) (string, context.Context) {
	t.Helper()
	resp, err := pb.NewAuthClient(conn).Authenticate(testContext(t),
		&pb.AuthenticateRequest{Name: user, Password: password})
	require.NoError(t, err)
	require.NotZero(t, resp.Header.Revision)
	return resp.Token, metadata.AppendToOutgoingContext(testContext(t), rpctypes.TokenFieldNameGRPC, resp.Token)
}

func requireMessage(t *testing.T, want, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, status.Convert(want).Message(), status.Convert(err).Message())
	require.Equal(t, status.Code(want), status.Code(err))
}

func TestRolesDecideWhatUsersMayDo(t *testing.T) {
	s := startReplica(t, cheap)
	addUsers(t, newClient(t, s))
	ann, root, ctx := clientOf(t, s, "ann", "annpw"), clientOf(t, s, "root", "rootpw"), testContext(t)

	_, err := ann.Put(ctx, "a/1", "v")
	require.NoError(t, err)
	_, err = ann.Put(ctx, "b", "v")
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	_, err = root.Put(ctx, "b", "v")
	require.NoError(t, err)
	_, err = ann.Get(ctx, "b")
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	_, err = ann.Get(ctx, "a/", clientv3.WithRange("a1"))
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, "a range that begins inside the permission and ends outside")
	_, err = newClient(t, s).Get(ctx, "a/1")
	require.ErrorIs(t, err, rpctypes.ErrUserEmpty)

	_, err = ann.Txn(ctx).If(clientv3.Compare(clientv3.Value("b"), "=", "v")).Then(clientv3.OpPut("a/2", "v")).Commit()
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, "a compare tells the value")
	_, err = ann.Txn(ctx).Else(clientv3.OpTxn(nil, nil, []clientv3.Op{clientv3.OpDelete("b")})).Commit()
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, "also of what is not executed")

	denied := <-ann.Watch(ctx, "b")
	require.True(t, denied.Canceled)
	require.ErrorContains(t, denied.Err(), "permission denied")
	allowed := ann.Watch(ctx, "a/", clientv3.WithPrefix())
	_, err = ann.Put(ctx, "a/3", "v")
	require.NoError(t, err)
	require.Len(t, (<-allowed).Events, 1)

	lease, err := root.Grant(ctx, 60)
	require.NoError(t, err)
	_, err = root.Put(ctx, "b", "v", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	for name, call := range map[string]func() error{
		"put":          func() error { _, err := ann.Put(ctx, "a/4", "v", clientv3.WithLease(lease.ID)); return err },
		"revoke":       func() error { _, err := ann.Revoke(ctx, lease.ID); return err },
		"time to live": func() error { _, err := ann.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys()); return err },
		"leases":       func() error { _, err := ann.Leases(ctx); return err },
		"keep alive":   func() error { _, err := ann.KeepAliveOnce(ctx, lease.ID); return err },
		"compact":      func() error { _, err := ann.Compact(ctx, 2); return err },
		"users":        func() error { _, err := ann.UserList(ctx); return err },
	} {
		require.ErrorIs(t, call(), rpctypes.ErrPermissionDenied, name)
	}
	_, err = ann.TimeToLive(ctx, lease.ID)
	require.NoError(t, err)
	got, err := ann.UserGet(ctx, "ann")
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, got.Roles)
	_, err = ann.RoleGet(ctx, "a")
	require.NoError(t, err)
	_, err = ann.UserGet(ctx, "root")
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	_, err = root.AuthDisable(ctx)
	require.NoError(t, err)
	_, err = newClient(t, s).Get(ctx, "b")
	require.NoError(t, err)
}

func TestTokensAreVoidAfterChangesOfTheirUser(t *testing.T) {
	s := startReplica(t, cheap)
	addUsers(t, newClient(t, s))
	root, conn, ctx := clientOf(t, s, "root", "rootpw"), dial(t, s), testContext(t)
	kv := pb.NewKVClient(conn)
	get := func(ctx context.Context) error {
		_, err := kv.Range(ctx, &pb.RangeRequest{Key: []byte("a/1")})
		return err
	}
	token, ann := tokenFor(t, conn, "ann", "annpw")
	require.Regexp(t, `^[a-zA-Z]{16}\.[0-9]+$`, token)
	require.NoError(t, get(ann))
	require.NoError(t, get(metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameSwagger, "Bearer "+token)))
	requireMessage(t, rpctypes.ErrGRPCInvalidAuthToken, get(metadata.AppendToOutgoingContext(ctx, "token", token+"0")))
	requireMessage(t, rpctypes.ErrGRPCInvalidAuthToken, get(metadata.AppendToOutgoingContext(ctx, "token", "nonsense")))

	_, err := root.RoleAdd(ctx, "other")
	require.NoError(t, err)
	require.NoError(t, get(ann), "a change of something else")
	_, err = root.UserChangePassword(ctx, "ann", "annpw")
	require.NoError(t, err)
	requireMessage(t, rpctypes.ErrGRPCInvalidAuthToken, get(ann))
	_, ann = tokenFor(t, conn, "ann", "annpw")
	require.NoError(t, get(ann))

	_, err = root.AuthDisable(ctx)
	require.NoError(t, err)
	_, err = newClient(t, s).AuthEnable(ctx)
	require.NoError(t, err)
	requireMessage(t, rpctypes.ErrGRPCInvalidAuthToken, get(ann))
	_, ann = tokenFor(t, conn, "ann", "annpw")
	_, err = root.UserDelete(ctx, "ann")
	require.NoError(t, err)
	requireMessage(t, rpctypes.ErrGRPCInvalidAuthToken, get(ann))
	_, err = pb.NewAuthClient(conn).Authenticate(ctx, &pb.AuthenticateRequest{Name: "ann", Password: "annpw"})
	requireMessage(t, rpctypes.ErrGRPCAuthFailed, err)
}

func TestJWT(t *testing.T) {
	dir := t.TempDir()
	key := dir + "/key"
	tlstest.Replace(t, key, []byte("0123456789abcdef0123456789abcdef"))
	s := startReplica(t, cheap, func(c *Config) { c.AuthToken = "jwt,sign-method=HS256,priv-key=" + key + ",ttl=1h" })
	addUsers(t, newClient(t, s))
	root, conn, ctx := clientOf(t, s, "root", "rootpw"), dial(t, s), testContext(t)
	token, ann := tokenFor(t, conn, "ann", "annpw")
	require.Equal(t, 2, strings.Count(token, "."))
	kv := pb.NewKVClient(conn)
	_, err := kv.Put(ann, &pb.PutRequest{Key: []byte("a/1")})
	require.NoError(t, err)
	_, err = root.RoleAdd(ctx, "other")
	require.NoError(t, err)
	_, err = kv.Put(ann, &pb.PutRequest{Key: []byte("a/1")})
	requireMessage(t, rpctypes.ErrGRPCAuthOldRevision, err)
	_, err = kv.Range(ann, &pb.RangeRequest{Key: []byte("a/1")})
	requireMessage(t, rpctypes.ErrGRPCAuthOldRevision, err)
	_, err = root.Put(ctx, "b", "v")
	require.NoError(t, err, "a client gets itself a new token")

	cfg := testConfig(t)
	for options, why := range map[string]string{
		"jwt": "invalid auth signature method", "jwt,sign-method=HS256": "missing key data",
		"jwt,sign-method=HS256,priv-key=/does/not/exist": "no such file", "other": "invalid auth options",
	} {
		cfg.AuthToken = options
		_, err := newServer(cfg, nodeOfFake(&fakeNode{}, nil))
		require.ErrorContains(t, err, why, options)
	}
}

func TestTheNameInACertificate(t *testing.T) {
	ca, d := tlstest.NewAuthority(t, "ca"), tlstest.NewDir(t)
	d.Write(t, ca, "server")
	d.Trust(t, ca)
	d.ClientCertAuth = true
	s := startReplica(t, cheap, func(c *Config) {
		c.ListenClientURLs = []string{"https://127.0.0.1:0", loopback}
		c.TLS = d.Config
	})
	plain, err := clientv3.New(clientv3.Config{Endpoints: s.ClientURLs()[1:], Logger: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, plain.Close()) }()
	addUsers(t, plain)

	conf := ca.ClientConfig(t, nil)
	pair, err := tls.X509KeyPair(ca.Issue(t, "ann"))
	require.NoError(t, err)
	conf.Certificates = []tls.Certificate{pair}
	conn, err := grpc.NewClient(s.clients[0].Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(conf)))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	kv, ctx := pb.NewKVClient(conn), testContext(t)
	_, err = kv.Put(ctx, &pb.PutRequest{Key: []byte("a/1")})
	require.NoError(t, err)
	_, err = kv.Put(ctx, &pb.PutRequest{Key: []byte("b")})
	requireMessage(t, rpctypes.ErrGRPCPermissionDenied, err)
	_, rootCtx := tokenFor(t, conn, "root", "rootpw")
	_, err = kv.Put(rootCtx, &pb.PutRequest{Key: []byte("b")})
	require.NoError(t, err, "a token counts more")
	_, err = kv.Put(metadata.AppendToOutgoingContext(ctx, "token", "x.1"), &pb.PutRequest{Key: []byte("a/1")})
	requireMessage(t, rpctypes.ErrGRPCInvalidAuthToken, err)
	_, err = kv.Put(metadata.AppendToOutgoingContext(ctx, "grpcgateway-accept", "x"), &pb.PutRequest{Key: []byte("a/1")})
	requireMessage(t, rpctypes.ErrGRPCUserEmpty, err)

	// The server asks for the caller.
	lock := v3lockpb.NewLockClient(conn)
	locked, err := lock.Lock(ctx, &v3lockpb.LockRequest{Name: []byte("a/lock")})
	require.NoError(t, err)
	_, err = lock.Unlock(ctx, &v3lockpb.UnlockRequest{Key: locked.Key})
	require.NoError(t, err)
	_, err = lock.Lock(ctx, &v3lockpb.LockRequest{Name: []byte("b/lock")})
	require.ErrorContains(t, err, "permission denied")

	// The gateway has no certificate of its client's, which is told to those that show a name; others are nobody.
	nameless := ca.ClientConfig(t, nil)
	pair, err = tls.X509KeyPair(ca.Issue(t, ""))
	require.NoError(t, err)
	nameless.Certificates = []tls.Certificate{pair}
	for want, c := range map[string]*tls.Config{"CommonName of client sending a request against gateway": conf,
		"user name is empty": nameless} {
		for _, prefix := range []string{"/v3/", "/v3beta/"} {
			tr := &http.Transport{TLSClientConfig: c}
			code, body := callURL(t, &http.Client{Transport: tr}, http.MethodPost, s.ClientURLs()[0]+prefix+"kv/put",
				`{"key":"YS8x"}`)
			tr.CloseIdleConnections()
			require.Equal(t, 400, code)
			require.Contains(t, body, want)
		}
	}
}

// What members and the server itself say of callers is not taken from clients.
func TestClientsCannotClaimAnIdentity(t *testing.T) {
	s := startReplica(t, cheap)
	addUsers(t, newClient(t, s))
	forged := []string{"sqlbrain-user-bin", "root", "sqlbrain-auth-revision", "99", "sqlbrain-common-name-bin", "root"}
	ctx := metadata.AppendToOutgoingContext(testContext(t), forged...)
	conn := dial(t, s)
	_, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("b")})
	requireMessage(t, rpctypes.ErrGRPCUserEmpty, err)
	_, err = v3lockpb.NewLockClient(conn).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("b")})
	require.ErrorContains(t, err, "user name is empty")

	post := func(path, body, token string) string {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.ClientURLs()[0]+path, strings.NewReader(body))
		require.NoError(t, err)
		for i := 0; i < len(forged); i += 2 {
			r.Header.Set("Grpc-Metadata-"+forged[i], forged[i+1])
			if strings.HasSuffix(forged[i], "-bin") {
				r.Header.Set("Grpc-Metadata-"+forged[i], "cm9vdA==")
			}
		}
		if token != "" {
			r.Header.Set("Authorization", token)
		}
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		answer, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return string(answer)
	}
	require.Contains(t, post("/v3/kv/range", `{"key":"Yg=="}`, ""), "user name is empty")
	var given struct{ Token string }
	require.NoError(t, json.Unmarshal([]byte(post("/v3/auth/authenticate", `{"name":"root","password":"rootpw"}`, "")),
		&given))
	require.Contains(t, post("/v3/kv/range", `{"key":"Yg=="}`, given.Token), "header")
	require.Contains(t, post("/v3/lock/lock", `{"name":"Yg=="}`, given.Token), "key")
	http.DefaultClient.CloseIdleConnections()
}

func TestNoSecretIsLogged(t *testing.T) {
	var log lockedBuffer
	s := startReplica(t, cheap, func(c *Config) {
		c.SlowRequest = time.Nanosecond
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	addUsers(t, newClient(t, s))
	conn := dial(t, s)
	token, ann := tokenFor(t, conn, "ann", "annpw")
	_, err := pb.NewKVClient(conn).Range(ann, &pb.RangeRequest{Key: []byte("b")})
	require.Equal(t, codes.PermissionDenied, status.Code(err))
	_, err = pb.NewAuthClient(conn).Authenticate(testContext(t), &pb.AuthenticateRequest{Name: "ann", Password: "wrongpw"})
	require.Error(t, err)
	long := &pb.AuthUserAddRequest{Name: "x", Password: strings.Repeat("longpw", 20)}
	_, err = pb.NewAuthClient(conn).UserAdd(ann, long)
	requireMessage(t, rpctypes.ErrGRPCPermissionDenied, err)
	_, root := tokenFor(t, conn, "root", "rootpw")
	_, err = pb.NewAuthClient(conn).UserAdd(root, long)
	require.ErrorContains(t, err, "72 bytes")
	text := log.String()
	for _, want := range []string{"Authenticate", "UserAdd", "user add", "authentication failed"} {
		require.Contains(t, text, want)
	}
	for _, secret := range []string{"rootpw", "annpw", "wrongpw", "longpw", token, "$2a$"} {
		require.NotContains(t, text, secret)
	}
}

// TestPermissionIsCheckedBeforePasswordsAreHashed relies on bcrypt, which refuses long passwords.
func TestPermissionIsCheckedBeforePasswordsAreHashed(t *testing.T) {
	s := startReplica(t, cheap)
	addUsers(t, newClient(t, s))
	conn := dial(t, s)
	_, ann := tokenFor(t, conn, "ann", "annpw")
	long := strings.Repeat("p", 100)
	for _, c := range []struct {
		ctx  context.Context
		want error
	}{{ann, rpctypes.ErrGRPCPermissionDenied}, {testContext(t), rpctypes.ErrGRPCUserEmpty}} {
		_, err := pb.NewAuthClient(conn).UserAdd(c.ctx, &pb.AuthUserAddRequest{Name: "x", Password: long})
		requireMessage(t, c.want, err)
		_, err = pb.NewAuthClient(conn).UserChangePassword(c.ctx,
			&pb.AuthUserChangePasswordRequest{Name: "ann", Password: long})
		requireMessage(t, c.want, err)
	}
}

// More logins than can wait for bcrypt are refused.
func TestTooManyLoginsAreTooManyRequests(t *testing.T) {
	s := startReplica(t, func(c *Config) { c.BcryptCost = 10 })
	addUsers(t, newClient(t, s))
	conn := dial(t, s)
	ctx, cancel := context.WithCancel(testContext(t))
	refused := make(chan struct{}, 1)
	var wg sync.WaitGroup
	for range 200 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			_, err := pb.NewAuthClient(conn).Authenticate(ctx, &pb.AuthenticateRequest{Name: "ann", Password: "wrong"})
			if status.Code(err) == codes.ResourceExhausted {
				select {
				case refused <- struct{}{}:
				default:
				}
			}
		})
	}
	select {
	case <-refused:
	case <-ctx.Done():
		t.Error("none was refused")
	}
	cancel()
	wg.Wait()
}

// Clients behind one address, as that of a proxy, must not keep each other from logging in.
func TestWrongLoginsDoNotKeepOthersOfTheSameAddressOut(t *testing.T) {
	s := startReplica(t, cheap, func(c *Config) { c.Console = true })
	addUsers(t, newClient(t, s))
	ctx, stop := context.WithCancel(testContext(t))
	var wg sync.WaitGroup
	var wrong atomic.Int32
	for i := range 64 {
		conn := dial(t, s)
		wg.Go(func() {
			for ctx.Err() == nil {
				_, err := pb.NewAuthClient(conn).Authenticate(ctx, &pb.AuthenticateRequest{Name: []string{"root", "nobody"}[i%2],
					Password: "wrong"})
				if err == nil {
					t.Error("logged in by a wrong password")
				}
				wrong.Add(1)
			}
		})
	}
	defer wg.Wait()
	defer stop()
	eventually.True(t, "many wrong logins", func() bool { return wrong.Load() > 60 })
	for _, user := range []string{"root", "ann"} {
		body := fmt.Sprintf(`{"name":%q,"password":%q}`, user, user+"pw")
		for range 3 {
			_, err := pb.NewAuthClient(dial(t, s)).Authenticate(testContext(t),
				&pb.AuthenticateRequest{Name: user, Password: user + "pw"})
			require.NoError(t, err, user)
			for _, path := range []string{"/v3/auth/authenticate", "/ui/api/login"} {
				resp, err := http.Post(s.ClientURLs()[0]+path, "application/json", strings.NewReader(body))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, http.StatusOK, resp.StatusCode, path)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// Calls of the gateway and the console come from this process: what delays failed logins must go
// by the address that they were called from, and believe nothing that the caller says of it.
func TestFailedLoginsOverHTTPCountForTheClientsAddress(t *testing.T) {
	var log lockedBuffer
	s := startReplica(t, cheap, func(c *Config) {
		c.Logger, c.Console = slog.New(slog.NewTextHandler(&log, nil)), true
	})
	addUsers(t, newClient(t, s))
	for i, path := range []string{"/v3/auth/authenticate", "/ui/api/login"} {
		r, err := http.NewRequestWithContext(testContext(t), http.MethodPost, s.ClientURLs()[0]+path,
			strings.NewReader(`{"name":"ann","password":"wrong"}`))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Forwarded-For", "198.51.100.1")
		r.Header.Set("Grpc-Metadata-X-Forwarded-For", "198.51.100.2")
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, i+1, strings.Count(log.String(), "source=127.0.0.1"), path)
	}
	require.NotContains(t, log.String(), "198.51.100")
	http.DefaultClient.CloseIdleConnections()
}

// Users are refused before any of their passwords is hashed or row written.
func TestNamesThatDoNotFitAreRefused(t *testing.T) {
	s := startReplica(t, cheap)
	c, ctx := newClient(t, s), testContext(t)
	long := strings.Repeat("n", 4000)
	for i, call := range []func() error{
		func() error { _, err := c.UserAdd(ctx, long, "p"); return err },
		func() error { _, err := c.RoleAdd(ctx, long); return err },
	} {
		require.Equal(t, codes.InvalidArgument, status.Code(call()), fmt.Sprint(i))
	}
}
