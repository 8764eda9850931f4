package server

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/server/audit"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles/tlstest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// audited returns a change of a configuration that switches the audit log on, and what
// returns its lines so far, without those about the log itself.
func audited(t *testing.T) (change func(*Config), lines func() []auditLine) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.log")
	log, err := audit.Open(audit.Config{To: path, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(log.Close)
	change = func(c *Config) { c.Audit = log }
	return change, func() (out []auditLine) {
		log.Close()
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		for text := range strings.Lines(string(content)) {
			line := auditLine{text: text}
			require.NoError(t, json.Unmarshal([]byte(text), &line))
			if line.Event != "start" && line.Event != "stop" {
				out = append(out, line)
			}
		}
		return out
	}
}

type auditLine struct {
	text                                     string
	Event, Method, User, Certificate, Remote string
	RequestID                                string `json:"request_id"`
	Code, Error                              string
	Target                                   map[string]any
}

// summary is what tests compare of lines.
func summary(lines []auditLine) (out []string) {
	for _, l := range lines {
		target, _ := json.Marshal(l.Target)
		out = append(out, strings.Join([]string{l.Event, l.Method[strings.LastIndex(l.Method, "/")+1:], l.User, l.Code,
			string(target)}, " "))
	}
	return out
}

func TestChangesLoginFailuresAndDenialsAreAudited(t *testing.T) {
	const password = "S3cr3tPassword"
	change, lines := audited(t)
	var requests eventually.Log
	s := startReplica(t, cheap, change, func(c *Config) {
		c.Logger = slog.New(slog.NewJSONHandler(&requests, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	ctx := testContext(t)
	c := newClient(t, s)
	do := func(_ any, err error) { t.Helper(); require.NoError(t, err) }
	refused := func(_ any, err error) { t.Helper(); require.Error(t, err) }
	do(c.Put(ctx, "k", "S3cr3tValue")) // no change of what is audited
	do(c.UserAdd(ctx, "root", password))
	do(c.UserGrantRole(ctx, "root", "root"))
	do(c.RoleAdd(ctx, "app"))
	do(c.RoleGrantPermission(ctx, "app", "a/", "a0", clientv3.PermissionType(clientv3.PermReadWrite)))
	do(c.UserAdd(ctx, "ann", password))
	do(c.UserGrantRole(ctx, "ann", "app"))
	refused(c.UserGrantRole(ctx, "ann", "none"))
	do(c.AuthEnable(ctx))
	refused(c.Authenticate(ctx, "ann\n", "S3cr3tWrong"))
	refused(c.Put(ctx, "a/x", "S3cr3tValue"))

	ann, root := clientOf(t, s, "ann", password), clientOf(t, s, "root", password)
	do(ann.Put(ctx, "a/x", "S3cr3tValue"))
	refused(ann.Get(ctx, "b/\x00", clientv3.WithPrefix()))
	refused(ann.Delete(ctx, "b"))
	refused(ann.Txn(ctx).If(clientv3.Compare(clientv3.Value("a/"), "=", "S3cr3tValue")).Then(
		clientv3.OpPut("b", "S3cr3tValue")).Commit())
	refused(ann.UserAdd(ctx, "eve", password))
	ranged, err := pb.NewKVClient(ann.ActiveConnection()).RangeStream(ctx,
		&pb.RangeRequest{Key: []byte("b"), RangeEnd: []byte("c")})
	require.NoError(t, err)
	refused(ranged.Recv())
	watched := <-ann.Watch(ctx, "b")
	require.Error(t, watched.Err())
	// made of others' calls
	_, err = v3lockpb.NewLockClient(ann.ActiveConnection()).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("b")})
	require.Error(t, err)
	do(root.UserChangePassword(ctx, "ann", password))
	root = clientOf(t, s, "root", password)
	do(root.RoleRevokePermission(ctx, "app", "a/", "a0"))
	do(root.UserRevokeRole(ctx, "ann", "app"))
	do(root.RoleDelete(ctx, "app"))
	do(root.UserDelete(ctx, "ann"))
	do(root.Compact(ctx, 2))
	do(root.AlarmList(ctx))
	do(root.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: 9, Alarm: pb.AlarmType_NOSPACE}))
	do(root.Defragment(ctx, s.ClientURLs()[0]))
	refused(root.MemberAdd(ctx, []string{"http://192.0.2.1:2380"}))
	refused(root.MemberRemove(ctx, 0xabc))
	refused(root.MoveLeader(ctx, 0xdef))
	snapshot, err := root.Snapshot(ctx)
	require.NoError(t, err)
	do(io.Copy(io.Discard, snapshot))
	require.NoError(t, snapshot.Close())
	do(root.AuthDisable(ctx))

	streams := map[string]bool{
		pb.Watch_Watch_FullMethodName: true, pb.KV_RangeStream_FullMethodName: true,
		pb.Maintenance_Snapshot_FullMethodName: true,
	}
	got := lines()
	require.Equal(t, []string{
		`change UserAdd  OK {"no_password":false,"user":"root"}`,
		`change UserGrantRole  OK {"role":"root","user":"root"}`,
		`change RoleAdd  OK {"role":"app"}`,
		`change RoleGrantPermission  OK {"key":"a/","permission":"READWRITE","range_end":"a0","role":"app"}`,
		`change UserAdd  OK {"no_password":false,"user":"ann"}`,
		`change UserGrantRole  OK {"role":"app","user":"ann"}`,
		`change UserGrantRole  FailedPrecondition {"role":"none","user":"ann"}`,
		`change AuthEnable  OK null`,
		`login_failed Authenticate ann\n InvalidArgument null`,
		`denied Put  InvalidArgument {"key":"a/x"}`,
		`denied Range ann PermissionDenied {"key":"b/\\x00","range_end":"b/\\x01"}`,
		`denied DeleteRange ann PermissionDenied {"key":"b"}`,
		`denied Txn ann PermissionDenied {"keys":["a/","b"]}`,
		`denied UserAdd ann PermissionDenied {"no_password":false,"user":"eve"}`,
		`denied RangeStream ann PermissionDenied {"key":"b","range_end":"c"}`,
		`denied Watch ann PermissionDenied {"key":"b"}`,
		`denied Lock ann Unknown {"name":"b"}`,
		`change UserChangePassword root OK {"user":"ann"}`,
		`change RoleRevokePermission root OK {"key":"a/","range_end":"a0","role":"app"}`,
		`change UserRevokeRole root OK {"role":"app","user":"ann"}`,
		`change RoleDelete root OK {"role":"app"}`,
		`change UserDelete root OK {"user":"ann"}`,
		`change Compact root OK {"physical":false,"revision":2}`,
		`change Alarm root OK {"action":"DEACTIVATE","alarm":"NOSPACE","member":"9"}`,
		`change Defragment root OK null`,
		`change MemberAdd root Unimplemented {"learner":false,"peer_urls":["http://192.0.2.1:2380"]}`,
		`change MemberRemove root Unimplemented {"member":"abc"}`,
		`change MoveLeader root FailedPrecondition {"member":"def"}`,
		`snapshot Snapshot root OK null`,
		`change AuthDisable root OK null`,
	}, summary(got))
	for _, line := range got {
		require.NotContains(t, line.text, "S3cr3t")
		require.Regexp(t, `^127\.0\.0\.1:\d+$`, line.Remote)
		require.Regexp(t, `^[0-9a-f]{16}$`, line.RequestID)
		require.Equal(t, line.Code != "OK", line.Error != "", line.text)
		if !streams[line.Method] { // which are not in the log of requests
			require.Regexp(t, `(?m)^.*"method":"`+line.Method+`".*"request_id":"`+line.RequestID+`".*$`, requests.String())
		}
	}
}

// A call that a follower forwards is recorded once, by the follower, which knows the client.
func TestForwardedCallsAreAuditedOnceWithTheClient(t *testing.T) {
	onFollower, followerLines := audited(t)
	onLeader, leaderLines := audited(t)
	var requests eventually.Log
	p := newPair(t, onFollower)
	leader := startWithPeers(t, p.leader, onLeader, func(c *Config) {
		c.Logger = slog.New(slog.NewJSONHandler(&requests, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	p.router.lead(leadership{conn: peerClient(t, leaderID, peerURLs(leader)).Conn()})
	p.leader.onTxn = func(context.Context) error { return rpctypes.ErrGRPCPermissionDenied }
	ctx := metadata.AppendToOutgoingContext(testContext(t), "sqlbrain-request-id", "forged", "x-forwarded-for",
		"203.0.113.9")

	_, err := pb.NewMaintenanceClient(p.conn).Alarm(ctx,
		&pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: 9})
	require.NoError(t, err)
	_, err = pb.NewKVClient(p.conn).Put(ctx, &pb.PutRequest{Key: []byte("k")})
	require.Error(t, err)

	require.Empty(t, leaderLines())
	lines := followerLines()
	require.Equal(t, []string{
		`change Alarm  OK {"action":"ACTIVATE","alarm":"NOSPACE","member":"9"}`,
		`denied Put  PermissionDenied {"key":"k"}`,
	}, summary(lines))
	for _, line := range lines {
		require.Regexp(t, `^127\.0\.0\.1:\d+$`, line.Remote)
		require.Regexp(t, `"method":"`+line.Method+`".*"request_id":"`+line.RequestID+`".*"forwarded_for":\["`+
			regexp.QuoteMeta(line.Remote)+`"\]`, requests.String())
	}
}

// A client says nothing about its address that is believed, on a Unix socket neither.
func TestCallsOverHTTPAreAuditedWithTheirClient(t *testing.T) {
	for url, remote := range map[string]string{
		loopback: `^127\.0\.0\.1(:\d+)?$`,
		"unix://" + filepath.Join(t.TempDir(), "s"): `^@$`,
	} {
		t.Run(strings.Split(url, ":")[0], func(t *testing.T) { auditedOverHTTP(t, url, remote) })
	}
}

func auditedOverHTTP(t *testing.T, url, remote string) {
	change, lines := audited(t)
	s := startReplica(t, cheap, change, func(c *Config) { c.Console, c.ListenClientURLs = true, []string{url} })
	addUsers(t, newClient(t, s))
	base := s.ClientURLs()[0]
	client := &http.Client{Transport: &http.Transport{}}
	if path, ok := strings.CutPrefix(base, "unix://"); ok {
		base = "http://localhost"
		client.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	}
	post := func(path, body string) {
		t.Helper()
		code, _ := callURL(t, client, http.MethodPost, base+path, body, "Content-Type", "application/json",
			"X-Forwarded-For", "203.0.113.9", "Grpc-Metadata-X-Forwarded-For", "203.0.113.9")
		require.NotEqual(t, http.StatusOK, code)
	}
	post("/v3/auth/authenticate", `{"name":"ann","password":"wrong"}`)
	post("/v3/kv/put", `{"key":"YQ=="}`)
	post("/ui/api/login", `{"name":"ann","password":"wrong"}`)
	callURL(t, client, http.MethodGet, base+"/ui/api/keys", "")
	var got []auditLine
	for _, line := range lines() {
		if line.Event != "change" {
			got = append(got, line)
			require.Regexp(t, remote, line.Remote, line.text)
		}
	}
	require.Equal(t, []string{
		"login_failed Authenticate ann InvalidArgument null",
		`denied Put  InvalidArgument {"key":"a"}`,
		"login_failed Authenticate ann InvalidArgument null",
		`denied console keys  InvalidArgument {"key":"\\x00","range_end":"\\x00"}`,
	}, summary(got))
}

func TestTheAuditLogNamesTheCertificateOfTheClient(t *testing.T) {
	ca, d := tlstest.NewServer(t)
	d.RequireClients(t, ca)
	change, lines := audited(t)
	s := startFake(t, &fakeNode{}, nil, change, overTLS(d))
	conn := dialTLS(t, s, ca.ClientNamed(t, "ann"))
	_, err := pb.NewMaintenanceClient(conn).Defragment(testContext(t), &pb.DefragmentRequest{}) // authentication is off
	require.NoError(t, err)
	require.Equal(t, []string{"change Defragment  OK null"}, summary(lines()))
	require.Equal(t, "ann", lines()[0].Certificate)
}
