package console_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sqlbrain/sqlbrain/server"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

const stopWait = eventually.Deadline

// start runs a server with a console, and returns its address.
func start(t *testing.T, change ...func(*server.Config)) string {
	t.Helper()
	address, _ := startReplica(t, change...)
	return address
}

// startReplica also returns what it serves.
func startReplica(t *testing.T, change ...func(*server.Config)) (string, *replica.Replica) {
	t.Helper()
	return startReplicaWith(t, func(*replica.Config) {}, change...)
}

func startReplicaWith(t *testing.T, configure func(*replica.Config),
	change ...func(*server.Config)) (string, *replica.Replica) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store := memstore.New()
	own := replica.DefaultConfig()
	own.RequestTimeout = eventually.Deadline
	own.Logger, own.Exclusive = log, true
	configure(&own)
	b, err := replica.OpenLeader(t.Context(), store, own)
	require.NoError(t, err)
	cfg := server.DefaultConfig()
	cfg.Logger, cfg.ListenClientURLs, cfg.Console, cfg.EnableGRPCGateway = log, []string{"http://127.0.0.1:0"}, true, false
	cfg.StopTimeout, cfg.BcryptCost, cfg.Name, cfg.Version = stopWait, 4, "n1", "v-test"
	for _, c := range change {
		c(&cfg)
	}
	s, err := server.New(cfg, b)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, b.Close(context.Background()))
		require.NoError(t, store.Close())
	})
	return s.ClientURLs()[0], b
}

func writing(c *server.Config) { c.ConsoleWrite = true }

// etcd returns a client of etcd's API.
func etcd(t *testing.T, address string, login ...string) *clientv3.Client {
	t.Helper()
	cfg := clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop(), DialTimeout: stopWait}
	if len(login) > 0 {
		cfg.Username, cfg.Password = login[0], login[1]
	}
	c, err := clientv3.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// open returns a browser for a server's console, and a client of its API.
func open(t *testing.T, change ...func(*server.Config)) (*browser, *clientv3.Client) {
	t.Helper()
	address := start(t, change...)
	return newBrowser(t, address), etcd(t, address)
}

func put(t *testing.T, c *clientv3.Client, key, value string) {
	t.Helper()
	_, err := c.Put(t.Context(), key, value)
	require.NoError(t, err)
}

// browser is a visitor of the console.
type browser struct {
	t       *testing.T
	address string
	client  *http.Client
}

func newBrowser(t *testing.T, address string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	b := &browser{t: t, address: address, client: &http.Client{Jar: jar, Transport: &http.Transport{}}}
	t.Cleanup(b.client.CloseIdleConnections)
	return b
}

// do sends a request with headers, and returns the response and its body.
func (b *browser) do(method, path string, body []byte, headers map[string]string) (*http.Response, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.address+path, bytes.NewReader(body))
	require.NoError(b.t, err)
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	resp, err := b.client.Do(r)
	require.NoError(b.t, err)
	defer func() { require.NoError(b.t, resp.Body.Close()) }()
	got, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	return resp, string(got)
}

type object map[string]any

// ask asks /ui/api/ and returns status and answer.
func (b *browser) ask(path string, params ...string) (int, object) {
	b.t.Helper()
	query := url.Values{}
	for i := 0; i < len(params); i += 2 {
		query.Set(params[i], params[i+1])
	}
	return b.answer(b.do(http.MethodGet, "/ui/api/"+path+"?"+query.Encode(), nil, nil))
}

// post does what the page's script does.
func (b *browser) post(path string, body any) (int, object) {
	b.t.Helper()
	raw, err := json.Marshal(body)
	require.NoError(b.t, err)
	return b.answer(b.do(http.MethodPost, "/ui/api/"+path, raw, map[string]string{
		"Content-Type": "application/json", "Origin": b.address, "Sec-Fetch-Site": "same-origin",
	}))
}

func (b *browser) answer(resp *http.Response, body string) (int, object) {
	b.t.Helper()
	require.Equal(b.t, "application/json", resp.Header.Get("Content-Type"), body)
	require.Equal(b.t, "no-store", resp.Header.Get("Cache-Control"))
	var out object
	require.NoError(b.t, json.Unmarshal([]byte(body), &out), body)
	return resp.StatusCode, out
}

// ok is an answer that is no error.
func (b *browser) ok(status int, out object) object {
	b.t.Helper()
	require.Equal(b.t, http.StatusOK, status, out)
	return out
}

func (b *browser) login(name, password string) {
	b.t.Helper()
	b.ok(b.post("login", object{"name": name, "password": password}))
}

func param(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func text(t *testing.T, encoded any) string {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(encoded.(string))
	require.NoError(t, err)
	return string(raw)
}
