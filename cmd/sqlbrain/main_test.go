package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// envRunMain makes the test binary behave as the command, for the tests that need
// a process of their own.
const envRunMain = "SQLBRAIN_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envRunMain) == "1" {
		main()
		return
	}
	eventually.NoLeaks(enginetest.Main(m))
}

// secret is the password of every database user that these tests make.
const secret = "Geheim+Wort%/x"

// answer is what a command line led to.
type answer struct {
	code           int
	stdout, stderr string
}

// execute runs a command line to its end.
func execute(t *testing.T, args ...string) answer {
	t.Helper()
	return executeEnv(t, nil, args...)
}

// succeed runs a command line that must not fail.
func succeed(t *testing.T, args ...string) answer {
	t.Helper()
	a := execute(t, args...)
	require.Zero(t, a.code, a.stdout+a.stderr)
	return a
}

func executeEnv(t *testing.T, environ []string, args ...string) answer {
	t.Helper()
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Deadline)
	defer cancel()
	a := answer{code: run(ctx, args, environ, &stdout, &stderr)}
	a.stdout, a.stderr = stdout.String(), stderr.String()
	a.requireNoSecret(t)
	return a
}

func (a answer) requireNoSecret(t *testing.T) {
	t.Helper()
	for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret), "Geheim", "Wort"} {
		require.NotContains(t, a.stdout+a.stderr, form)
	}
}

// requireRefused demands exit code 1 and one line of at most 500 bytes on stderr besides the log's.
func (a answer) requireRefused(t *testing.T, want ...string) {
	t.Helper()
	require.Equal(t, 1, a.code, a.stderr)
	var lines []string
	for line := range strings.Lines(a.stderr) {
		if !json.Valid([]byte(line)) {
			lines = append(lines, line)
		}
	}
	require.Len(t, lines, 1, a.stderr)
	require.LessOrEqual(t, len(lines[0]), 500, lines[0])
	require.True(t, strings.HasPrefix(lines[0], "sqlbrain: "), lines[0])
	for _, w := range want {
		require.Contains(t, lines[0], w)
	}
	for _, no := range []string{"goroutine", "panic", "Usage:", ".go:"} {
		require.NotContains(t, a.stderr, no)
	}
}

// testContext ends when a test takes too long.
func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Deadline)
	t.Cleanup(cancel)
	return ctx
}

// node is a server that runs inside the test.
type node struct {
	endpoint string
	cancel   context.CancelFunc
	done     chan struct{}
	code     int
	log      *logBuffer
}

// startNode runs a command line that serves, on a free port unless it names one,
// and returns when it is ready. It is stopped when t ends.
func startNode(t *testing.T, args ...string) *node {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{cancel: cancel, done: make(chan struct{}), log: newLogBuffer()}
	if args[0] != kineName && !strings.Contains(strings.Join(args, " "), "--listen-client-urls") {
		args = append(args, "--listen-client-urls=http://127.0.0.1:0", "--listen-peer-urls=")
	}
	go func() {
		defer close(n.done)
		n.code = run(ctx, args, nil, n.log, n.log)
		n.log.close()
	}()
	t.Cleanup(func() {
		cancel()
		<-n.done
		answer{stdout: n.log.String()}.requireNoSecret(t)
	})
	ready := n.log.await("ready")
	require.NotNil(t, ready, n.log.String())
	n.endpoint = ready["listen"].([]any)[0].(string)
	return n
}

// stop ends the node and returns its exit code.
func (n *node) stop() int {
	n.cancel()
	<-n.done
	return n.code
}

func (n *node) client(t *testing.T) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{n.endpoint}, DialTimeout: 10 * time.Second,
		Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// put makes a client for one write.
func (n *node) put(t *testing.T, key, value string) {
	t.Helper()
	_, err := n.client(t).Put(t.Context(), key, value)
	require.NoError(t, err)
}

// logBuffer collects a JSON log and lets tests wait for a message.
type logBuffer struct {
	mu     sync.Mutex
	change *sync.Cond
	text   bytes.Buffer
	closed bool
}

func newLogBuffer() *logBuffer {
	b := &logBuffer{}
	b.change = sync.NewCond(&b.mu)
	return b
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.change.Broadcast()
	return b.text.Write(p)
}

func (b *logBuffer) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.change.Broadcast()
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// await returns the first record with that message, nil if the log ends before, or after
// eventually.Deadline.
func (b *logBuffer) await(message string) map[string]any {
	timeout := time.Now().Add(eventually.Deadline)
	defer time.AfterFunc(eventually.Deadline, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.change.Broadcast()
	}).Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		for line := range bytes.Lines(b.text.Bytes()) {
			var record map[string]any
			if json.Unmarshal(line, &record) == nil && record["msg"] == message {
				return record
			}
		}
		if b.closed || !time.Now().Before(timeout) {
			return nil
		}
		b.change.Wait()
	}
}

// sqliteURL returns the URL of a database file that does not exist yet.
func sqliteURL(t *testing.T) string {
	t.Helper()
	return "sqlite://" + filepath.Join(t.TempDir(), "test.db")
}

// onEngines runs f on an empty database of each engine, on servers as a new user
// with those rights on it.
func onEngines(t *testing.T, rights string, f func(t *testing.T, datastore string)) {
	t.Run("sqlite", func(t *testing.T) { f(t, sqliteURL(t)) })
	onProducts(t, func(t *testing.T, p enginetest.Product) { f(t, newUser(t, p.Database(t), rights)) })
}

// onProducts runs f on each product that is a server.
func onProducts(t *testing.T, f func(t *testing.T, p enginetest.Product)) {
	for _, p := range enginetest.Products() {
		t.Run(string(p), func(t *testing.T) { f(t, p) })
	}
}

// mysqlUser returns the URL of a fresh database for a fresh user with those
// rights on it.
func mysqlUser(t *testing.T, rights string) string {
	t.Helper()
	rootURL := enginetest.Database(t)
	return newUser(t, rootURL, rights)
}

func newUser(t *testing.T, rootURL, rights string) string {
	t.Helper()
	u, err := url.Parse(rootURL)
	require.NoError(t, err)
	var random [4]byte
	_, err = rand.Read(random[:])
	require.NoError(t, err)
	user := "app_" + hex.EncodeToString(random[:])
	account := "'" + user + "'@'%'"
	enginetest.Exec(t, rootURL, "CREATE USER "+account+" IDENTIFIED BY '"+secret+"'")
	t.Cleanup(func() { enginetest.Exec(t, rootURL, "DROP USER "+account) })
	if rights != "" {
		enginetest.Exec(t, rootURL, "GRANT "+rights+" ON `"+strings.TrimPrefix(u.Path, "/")+"`.* TO "+account)
	}
	u.User = url.UserPassword(user, secret)
	return u.String()
}
