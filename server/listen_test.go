package server

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/net/http2"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles/tlstest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	// A socket without a listener is replaced.
	stale, err := net.Listen("unix", path)
	require.NoError(t, err)
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, stale.Close())
	onSocket := func(c *Config) { c.ListenClientURLs = []string{"unix://" + path} }
	s := startFake(t, &fakeNode{rangeResult: mvcc.RangeResult{Revision: 1}}, nil, onSocket)
	require.Equal(t, []string{"unix://" + path}, s.ClientURLs())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.ModeSocket|0o600, info.Mode())
	c, err := clientv3.New(clientv3.Config{Endpoints: s.ClientURLs(), Logger: zap.NewNop()})
	require.NoError(t, err)
	_, err = c.Get(testContext(t), "k")
	require.NoError(t, err)
	require.NoError(t, c.Close())

	requireRefused(t, "in use by another process", onSocket)

	other, err := newFake(t, &fakeNode{}, nil, func(c *Config) {
		c.ListenClientURLs, c.SocketMode = []string{"unix://" + filepath.Join(t.TempDir(), "s")}, 0o660
	})
	require.NoError(t, err)
	info, err = os.Stat(strings.TrimPrefix(other.ClientURLs()[0], "unix://"))
	require.NoError(t, err)
	require.Equal(t, os.ModeSocket|0o660, info.Mode())
	require.NoError(t, other.Close())

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	requireRefused(t, "is not a socket", func(c *Config) { c.ListenClientURLs = []string{"unix://" + file} })
	require.FileExists(t, file)
}

func TestCloseWithoutRun(t *testing.T) {
	s, err := newFake(t, &fakeNode{}, nil)
	require.NoError(t, err)
	address := s.clients[0].Addr().String()
	require.NoError(t, s.Close())
	_, err = net.Dial("tcp", address)
	require.Error(t, err)
}

// Connections that never say what they want must not keep the server from
// stopping.
func TestSilentConnectionsDoNotHoldUpStop(t *testing.T) {
	s, err := newFake(t, &fakeNode{}, nil)
	require.NoError(t, err)
	stop := runServer(t, s)
	address := s.clients[0].Addr().String()
	var conns []net.Conn
	for _, first := range []string{"", "PRI", http2.ClientPreface} {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		_, err = io.WriteString(c, first)
		require.NoError(t, err)
		conns = append(conns, c)
	}
	// A whole call on another connection shows that these were accepted.
	status, _ := call(t, s, http.MethodGet, "/version", "")
	require.Equal(t, 200, status)
	stop()
	for _, c := range conns {
		_, err := io.Copy(io.Discard, bufio.NewReader(c))
		_ = err // end of file or reset: closed in either case
		require.NoError(t, c.Close())
	}
}

// elsewhere is a listener that other hosts reach, as far as its address says.
type elsewhere struct{ net.Listener }

func (elsewhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 2379} }

func TestListenersThatOtherHostsReachAreWarnedOf(t *testing.T) {
	ca, d := tlstest.NewServer(t)
	d.Trust(t, ca)
	certificates := d.Config
	certificates.ClientCertAuth = true
	enabled := &auth.Rows{AuthSettings: coder.AuthSettings{Enabled: true}}
	const plain, open = "in plain text", "authentication off"
	for name, tt := range map[string]struct {
		url   string
		tls   tlsfiles.Config
		local bool
		users *auth.Rows
		want  []string
	}{
		"loopback":               {url: loopback, local: true},
		"a socket":               {url: "unix://" + filepath.Join(t.TempDir(), "s"), local: true},
		"plain":                  {url: loopback, want: []string{plain, open}},
		"plain with users":       {url: loopback, users: enabled, want: []string{plain}},
		"TLS":                    {url: loopbackTLS, tls: d.Config, want: []string{open}},
		"TLS with users":         {url: loopbackTLS, tls: d.Config, users: enabled},
		"TLS of both":            {url: loopbackTLS, tls: certificates},
		"certificates, not used": {url: loopback, tls: certificates, want: []string{plain, open}},
	} {
		t.Run(name, func(t *testing.T) {
			var log eventually.Log
			s, err := newFake(t, &fakeNode{users: tt.users}, nil, func(c *Config) {
				c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
				c.ListenClientURLs, c.TLS = []string{tt.url, tt.url}, tt.tls
				if strings.HasPrefix(tt.url, "unix") {
					c.ListenClientURLs = c.ListenClientURLs[:1]
				}
			})
			require.NoError(t, err)
			if !tt.local {
				for _, l := range s.clients {
					l.Listener = elsewhere{l.Listener}
				}
			}
			runServer(t, s)()
			for _, warning := range []string{plain, open} {
				n := 0
				if slices.Contains(tt.want, warning) {
					n = 1
				}
				require.Equal(t, n, strings.Count(log.String(), warning), log.String())
			}
		})
	}
}

func TestRunReportsAListenerThatFails(t *testing.T) {
	s, err := newFake(t, &fakeNode{}, nil)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Run(context.Background()) }()
	_, err = pb.NewKVClient(dial(t, s)).Range(testContext(t), &pb.RangeRequest{Key: key})
	require.NoError(t, err)
	require.NoError(t, s.clients[0].Close())
	require.Error(t, <-done)
}

// TestClientConnectionsLeaveRoom: clients that hold all connections they may have do not keep probes out, and those of
// other clients are served once one of them leaves.
func TestClientConnectionsLeaveRoom(t *testing.T) {
	s := startFake(t, &fakeNode{rangeResult: mvcc.RangeResult{Revision: 1}}, nil, func(c *Config) {
		c.MaxClientConnections, c.MaxMetricsConnections, c.ListenMetricsURLs = 2, 1, []string{loopback}
	})
	address := strings.TrimPrefix(s.ClientURLs()[0], "http://")
	var held []net.Conn
	for range 3 {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = io.WriteString(c, "GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		held = append(held, c)
	}
	answer := func(c net.Conn) {
		line, err := bufio.NewReader(c).ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, line, "200")
	}
	answer(held[0])
	answer(held[1])
	probe := http.Client{Timeout: eventually.Deadline} // it would wait for a client to leave
	resp, err := probe.Get(metricsURLs(s)[0] + "/livez")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, held[2].SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = held[2].Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it waits")
	require.NoError(t, held[2].SetReadDeadline(time.Time{}))
	require.NoError(t, held[0].Close())
	answer(held[2])

	// The port for metrics has a limit too.
	ask := func() net.Conn {
		c, err := net.Dial("tcp", s.metrics[0].Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		return c
	}
	probe.CloseIdleConnections()
	first := ask()
	answer(first)
	waits := ask()
	require.NoError(t, waits.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = waits.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it waits")
	require.NoError(t, waits.SetReadDeadline(time.Time{}))
	require.NoError(t, first.Close())
	answer(waits)
}
