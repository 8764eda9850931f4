package main

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestServeIsTheDefaultCommandAndKeepsData(t *testing.T) {
	onEngines(t, "SELECT, INSERT, UPDATE, DELETE, CREATE", func(t *testing.T, raw string) {
		n := startNode(t, "--datastore", raw)
		n.put(t, "a", "b")
		require.Zero(t, n.stop())

		started, ready := n.log.await("sqlbrain starts"), n.log.await("ready")
		require.NotEmpty(t, started["version"])
		require.NotContains(t, started["datastore"], "Geheim")
		require.Equal(t, started["datastore"], ready["datastore"])
		require.NotEmpty(t, ready["cluster_id"])

		n = startNode(t, "serve", "--datastore", raw, "--migrate=verify")
		got, err := n.client(t).Get(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, "b", string(got.Kvs[0].Value))
		require.Equal(t, ready["cluster_id"], n.log.await("ready")["cluster_id"])
		require.Zero(t, n.stop())
	})
}

func TestDefaultDatabaseIsInTheDataDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new directory")
	n := startNode(t, "--data-dir", dir)
	require.Zero(t, n.stop())
	require.FileExists(t, filepath.Join(dir, "sqlbrain.db"))
}

func TestChangesAreInTheAuditLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	n := startNode(t, "--datastore", sqliteURL(t), "--audit-log", file, "--name=n1")
	_, err := n.client(t).UserAdd(t.Context(), "ann", secret)
	require.NoError(t, err)
	require.Zero(t, n.stop())
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	require.Len(t, lines, 3)
	require.Contains(t, lines[0], `"event":"start"`)
	require.Contains(t, lines[0], `"audit-log=`+file+`"`)
	require.Contains(t, lines[1], `"event":"change","method":"/etcdserverpb.Auth/UserAdd"`)
	require.Contains(t, lines[2], `"event":"stop"`)
	require.NotContains(t, string(content), secret)

	n = startNode(t, "--datastore", sqliteURL(t))
	_, err = n.client(t).UserAdd(t.Context(), "ann", "p")
	require.NoError(t, err)
	require.Equal(t, "change", n.log.await("audit")["event"], "by default it is the log")
	require.Zero(t, n.stop())

	none := filepath.Join(t.TempDir(), "none", "audit.log")
	serve(t, "--datastore", sqliteURL(t), "--audit-log", none).requireRefused(t, "audit log: open "+none)
	serve(t, "--datastore", sqliteURL(t), "--audit-log=").requireRefused(t, "--audit-log: must not be empty")
}

func TestStepsOfTheProtocolAreRecorded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "steps")
	n := startNode(t, "--datastore", sqliteURL(t), "--trace-protocol", file, "--name=n1")
	n.put(t, "k", "v")
	require.Zero(t, n.stop())
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, kind := range []string{"open", "take", "lead", "commit", "show"} {
		require.Contains(t, string(content), `{"node":"n1","kind":"`+kind+`"`)
	}

	none := filepath.Join(t.TempDir(), "none", "steps")
	serve(t, "--datastore", sqliteURL(t), "--trace-protocol", none).requireRefused(t, "recording the protocol: open "+none)
}

func TestSettingsReachTheServer(t *testing.T) {
	n := startNode(t, "--datastore", sqliteURL(t), "--name=n1", "--max-txn-ops=1", "--max-request-bytes=2000",
		"--advertise-client-urls=http://etcd.example:2379", "--listen-metrics-urls=http://127.0.0.1:0",
		"--enable-pprof", "--console", "--console-write", "--enable-grpc-gateway=false", "--metrics=extensive",
		"--quota-backend-bytes=8589934592",
		"--grpc-keepalive-interval=0", "--object-cache-bytes=0", "--host-whitelist=127.0.0.1,b.example")
	c := n.client(t)
	_, err := c.Txn(t.Context()).Then(clientv3.OpPut("a", ""), clientv3.OpPut("b", "")).Commit()
	require.ErrorContains(t, err, "too many operations")
	_, err = c.Put(t.Context(), "a", strings.Repeat("x", 3000))
	require.ErrorContains(t, err, "too large")
	members, err := c.MemberList(t.Context())
	require.NoError(t, err)
	require.Equal(t, "n1", members.Members[0].Name)
	require.Equal(t, []string{"http://etcd.example:2379"}, members.Members[0].ClientURLs)
	status, err := c.Status(t.Context(), n.endpoint)
	require.NoError(t, err)
	require.EqualValues(t, 8589934592, status.DbSizeQuota)

	require.Equal(t, http.StatusOK, get(t, n.endpoint+"/debug/pprof/goroutine"))
	require.Equal(t, http.StatusNotFound, get(t, n.endpoint+"/debug/pprof/cmdline"), "it may hold the password")
	require.Equal(t, http.StatusNotFound, get(t, n.endpoint+"/v3/kv/range"))
	require.Equal(t, http.StatusOK, get(t, n.endpoint+"/ui/"))
	require.Contains(t, body(t, n.endpoint+"/ui/api/session"), `"may_write":true`)
	require.Equal(t, http.StatusMisdirectedRequest,
		get(t, strings.Replace(n.endpoint, "127.0.0.1", "localhost", 1)+"/version"))
	metrics := n.log.await("serving metrics")["url"].(string)
	require.Equal(t, http.StatusOK, get(t, metrics+"/metrics"))
	require.Equal(t, http.StatusOK, get(t, metrics+"/health"))

	plain := startNode(t, "--datastore", sqliteURL(t))
	require.Equal(t, http.StatusNotFound, get(t, plain.endpoint+"/debug/pprof/"))
	require.Equal(t, http.StatusNotFound, get(t, plain.endpoint+"/ui/"))
}

func get(t *testing.T, address string) (status int) {
	t.Helper()
	status, _ = fetch(t, address)
	return status
}

func body(t *testing.T, address string) string {
	t.Helper()
	_, text := fetch(t, address)
	return text
}

func fetch(t *testing.T, address string) (status int, text string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(address)
	require.NoError(t, err)
	content, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, string(content)
}

// Every setting that the replica has must be passed on.
func TestBackendSettings(t *testing.T) {
	p := newProgram(t, "--batch-max-requests=1", "--batch-max-rows=2", "--batch-max-bytes=3", "--queue-length=4",
		"--commit-timeout=5s", "--index-cache-entries=6", "--object-cache-bytes=0", "--ttl-policy=/events/=1h",
		"--watch-ring-events=7", "--watch-ring-bytes=8", "--watch-queue-events=9",
		"--watch-queue-bytes=10", "--watch-progress-notify-interval=11s", "--request-timeout=12s")
	c := p.settings.Replica
	require.Equal(t, []int{1, 2, 3, 4, 6, 0}, []int{c.Write.BatchRequests, c.Write.BatchRows, c.Write.BatchBytes,
		c.Write.QueueLength, c.Write.IndexCache, c.RecordCache})
	require.Equal(t, []int{7, 8, 9, 10}, []int{c.Watch.RingEvents, c.Watch.RingBytes, c.Watch.QueueEvents,
		c.Watch.QueueBytes})
	require.Equal(t, []time.Duration{5 * time.Second, 12 * time.Second, 11 * time.Second}, []time.Duration{
		c.Write.CommitTimeout, c.RequestTimeout, c.Watch.ProgressInterval})
	require.Equal(t, []lease.Policy{{Prefix: []byte("/events/"), TTL: 3600e9}}, c.TTLPolicies)
	require.Equal(t, replica.DefaultConfig(), newProgram(t).settings.Replica)
	require.False(t, newProgram(t, "--read-consistency=lease").settings.Replica.ConfirmReads)
	require.True(t, newProgram(t, "--read-consistency=database").settings.Replica.ConfirmReads)
}

func TestPlainTextConnectionToAnotherHostIsLogged(t *testing.T) {
	for raw, warns := range map[string]bool{
		"sqlite://a.db":                               false,
		"mysql://u@127.0.0.1/d":                       false,
		"mysql://u@[::1]:3307/d":                      false,
		"tidb://u@localhost/d":                        false,
		"mysql://u@db.example/d":                      true,
		"mysql://u@localhost,db.example/d":            true,
		"mysql://u@db.example/d?tls=false":            true,
		"mysql://u@db.example/d?tls=preferred":        true,
		"mysql://u@db.example/d?tls=skip-verify":      false,
		"mysql://u@db.example/d?tls=true":             false,
		"mysql://u@db.example/d?tls-ca=/etc/ca.crt":   false,
		"mysql://u:Geheim@10.1.2.3:3306/d?timeout=1s": true,
	} {
		u, err := sqlstore.ParseURL(raw)
		require.NoError(t, err)
		var out strings.Builder
		warnPlainDatabase(slog.New(slog.NewTextHandler(&out, nil)), u)
		require.Equal(t, warns, strings.Contains(out.String(), "tls=true"), "%s: %s", raw, out.String())
		require.LessOrEqual(t, strings.Count(out.String(), "\n"), 1)
		require.NotContains(t, out.String(), "Geheim")
	}
}

func newProgram(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{settings: config.New()}
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	p.settings.Bind(fs)
	require.NoError(t, fs.Parse(args))
	require.NoError(t, p.settings.Load(nil))
	return p
}

func TestServiceManagerIsNotified(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	n := startNode(t, "--datastore", sqliteURL(t))
	read := func() string {
		buf := make([]byte, 100)
		k, err := l.Read(buf)
		require.NoError(t, err)
		return string(buf[:k])
	}
	require.Equal(t, "READY=1", read())
	require.Zero(t, n.stop())
	require.Equal(t, "STOPPING=1", read())
}

func TestLogOutputs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	n := startNode(t, "--datastore", sqliteURL(t), "--log-outputs", "stdout,"+file, "--log-level=info")
	require.Zero(t, n.stop())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, n.log.String(), string(text))
}

// process is the command in a separate process.
type process struct {
	*exec.Cmd
	log *logBuffer
}

func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Deadline) // then it is killed, and fails the test
	t.Cleanup(cancel)
	p := &process{exec.CommandContext(ctx, self, args...), newLogBuffer()}
	p.Env = append(os.Environ(), envRunMain+"=1")
	p.Stdout, p.Stderr = p.log, p.log
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		if p.ProcessState == nil {
			_ = p.Process.Kill()
			_ = p.Wait()
		}
	})
	return p
}

func TestSignals(t *testing.T) {
	raw := sqliteURL(t)
	args := []string{"--datastore", raw, "--listen-client-urls=http://127.0.0.1:0", "--listen-peer-urls=",
		"--stop-timeout=1h", "--request-timeout=1h", "--commit-timeout=1h"}

	p := startProcess(t, args...)
	require.NotNil(t, p.log.await("ready"))
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.Wait(), "the first signal stops in order")
	require.NotNil(t, p.log.await("sqlbrain stopped"))

	// A write that cannot end, because another connection holds the file's lock, keeps
	// the server from stopping.
	p = startProcess(t, args...)
	endpoint := p.log.await("ready")["listen"].([]any)[0].(string)
	u, err := url.Parse(raw)
	require.NoError(t, err)
	db, err := sql.Open("sqlite", u.Path)
	require.NoError(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	_, err = db.Exec("PRAGMA busy_timeout = 300000; BEGIN IMMEDIATE")
	require.NoError(t, err)
	n := &node{endpoint: endpoint}
	c := n.client(t)
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Deadline)
	defer cancel()
	put := make(chan error, 1)
	go func() { _, err := c.Put(ctx, "a", "b"); put <- err }()
	defer func() { cancel(); <-put }()
	for !strings.Contains(body(t, endpoint+"/metrics"),
		`grpc_server_started_total{grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"} 1`) {
		require.NoError(t, ctx.Err(), "the put never arrived")
	}

	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.NotNil(t, p.log.await("stopping"))
	ended := make(chan error, 1)
	go func() { ended <- p.Wait() }()
	for again := time.NewTicker(100 * time.Millisecond); ; {
		select {
		case <-again.C:
			if err := p.Process.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
				require.NoError(t, err)
			}
			continue
		case err = <-ended:
			again.Stop()
		}
		break
	}
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 128+int(syscall.SIGTERM), exit.ExitCode(), "a signal that does not repeat the first ends it at once")
}

// A signal that comes twice, as from a terminal and from the program that started this one, is one request to stop.
func TestRepeatedSignalsAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, last, stopped := make(chan os.Signal, 4), make(chan os.Signal), 0
		go func() { last <- stopOn(signals, func() { stopped++ }) }()
		signals <- os.Interrupt
		time.Sleep(time.Millisecond)
		signals <- os.Interrupt
		time.Sleep(repeated)
		signals <- syscall.SIGTERM
		signals <- os.Interrupt
		require.Equal(t, syscall.SIGTERM, <-last)
		require.Equal(t, 1, stopped)
		require.Len(t, signals, 1)
	})
}
