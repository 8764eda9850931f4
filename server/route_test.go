package server

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/server/tlsfiles/tlstest"
)

// dialURL connects to url without speaking to it.
func dialURL(t *testing.T, url string) net.Conn {
	t.Helper()
	_, address, _ := strings.Cut(url, "://")
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	return c
}

// requireClosed reads from c until the server closes it.
func requireClosed(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := io.Copy(io.Discard, c)
	var timeout net.Error
	require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "the connection is still open")
	require.NoError(t, c.Close())
}

// pipeListener accepts one side of each pipe that dial makes.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) dial() net.Conn {
	client, server := net.Pipe()
	l.conns <- server
	return client
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

// startRouter runs a router over pipes, with no time limits that a test would meet.
func startRouter(t *testing.T) (*router, *pipeListener) {
	l := newPipeListener()
	r := newRouter(l, &Config{headTimeout: time.Hour, idleTimeout: time.Hour})
	done := make(chan error, 1)
	go func() { done <- r.serve() }()
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		require.ErrorIs(t, <-done, net.ErrClosed)
	})
	return r, l
}

// A connection of settings only is gRPC's before much of it is kept, and all of its
// bytes arrive there.
func TestFloodOfSettingsIsNotKept(t *testing.T) {
	r, l := startRouter(t)
	client := l.dial()
	go func() { _, _ = io.Copy(io.Discard, client) }()
	sent := &bytes.Buffer{}
	flood := make(chan struct{})
	go func() {
		defer close(flood)
		frame := []byte(http2.ClientPreface)
		for {
			// A pipe has no buffer: what is written was read.
			n, err := client.Write(frame)
			sent.Write(frame[:n])
			if err != nil {
				return
			}
			frame = []byte{0, 0, 0, byte(http2.FrameSettings), 0, 0, 0, 0, 0}
		}
	}()
	c, err := r.grpc.Accept()
	require.NoError(t, err)
	got := make([]byte, 2*maxRouted)
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	<-flood
	require.Equal(t, sent.Bytes()[:len(got)], got)
	require.LessOrEqual(t, sent.Len(), len(got)+64, "no more is read than what is asked for")
	require.NoError(t, client.Close())
}

// gRPC acknowledges settings; the router does not.
func TestFloodOfSettingsReachesGRPC(t *testing.T) {
	s := startFake(t, &fakeNode{}, nil)
	c := dialURL(t, s.ClientURLs()[0])
	_, err := io.WriteString(c, http2.ClientPreface+strings.Repeat("\x00\x00\x00\x04\x00\x00\x00\x00\x00", maxRouted/9+1))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
	for framer := http2.NewFramer(c, c); ; {
		f, err := framer.ReadFrame()
		require.NoError(t, err)
		if f, ok := f.(*http2.SettingsFrame); ok && f.IsAck() {
			break
		}
	}
	require.NoError(t, c.Close())
}

func TestConnectionIsRoutedWithinItsBound(t *testing.T) {
	h := &head{conn: endlessConn{frame: []byte{0, 0, 0, byte(http2.FrameSettings), 0, 0, 0, 0, 0}}}
	isGRPC, err := h.isGRPC()
	require.NoError(t, err)
	require.True(t, isGRPC)
	require.LessOrEqual(t, len(h.read), maxRouted)
}

// endlessConn sends the same frame for ever.
type endlessConn struct {
	net.Conn
	frame []byte
}

func (c endlessConn) Write(p []byte) (int, error) { return len(p), nil }

func (c endlessConn) Read(p []byte) (int, error) {
	if len(p) < len(c.frame) {
		return 0, io.ErrShortBuffer
	}
	return copy(p, c.frame), nil
}

// headers returns a frame with the first headers of a request.
func firstHeaders(t *testing.T, flags http2.Flags, fields ...hpack.HeaderField) []byte {
	var block, out bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/version"}, {Name: ":authority", Value: "a"},
	}, fields...) {
		require.NoError(t, e.WriteField(f))
	}
	f := http2.NewFramer(&out, nil)
	require.NoError(t, f.WriteSettings())
	require.NoError(t, f.WriteRawFrame(http2.FrameHeaders, flags, 1, block.Bytes()))
	return out.Bytes()
}

func TestFirstRequestRoutes(t *testing.T) {
	const whole = http2.FlagHeadersEndHeaders
	large := hpack.HeaderField{Name: "cookie", Value: strings.Repeat("\x01", maxRouted/4), Sensitive: true}
	for name, tt := range map[string]struct {
		sent []byte
		grpc bool
	}{
		"HTTP/1":                    {[]byte("GET / HTTP/1.1\r\n"), false},
		"HTTP/1 that begins like 2": {[]byte("PRIMARY / HTTP/1.1\r\n"), false},
		"HTTP/1, short":             {[]byte("GET /\r\n"), false},
		"gRPC":                      {append([]byte(http2.ClientPreface), firstHeaders(t, whole, hpack.HeaderField{Name: "content-type", Value: "application/grpc+proto"})...), true},
		"gRPC behind its metadata":  {append([]byte(http2.ClientPreface), firstHeaders(t, whole, large, hpack.HeaderField{Name: "content-type", Value: "application/grpc"})...), true},
		"JSON":                      {append([]byte(http2.ClientPreface), firstHeaders(t, whole, hpack.HeaderField{Name: "content-type", Value: "application/json"})...), false},
		"no body":                   {append([]byte(http2.ClientPreface), firstHeaders(t, whole)...), false},
		"no request":                {append([]byte(http2.ClientPreface), 0, 0, 8, byte(http2.FramePing), 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8), true},
	} {
		t.Run(name, func(t *testing.T) {
			r, l := startRouter(t)
			client := l.dial()
			go func() { _, _ = io.Copy(io.Discard, client) }()
			go func() { _, _ = client.Write(tt.sent) }()
			to := r.http
			if tt.grpc {
				to = r.grpc
			}
			c, err := to.Accept()
			require.NoError(t, err)
			got := make([]byte, len(tt.sent))
			_, err = io.ReadFull(c, got)
			require.NoError(t, err)
			require.Equal(t, tt.sent, got)
			require.NoError(t, c.Close())
			require.NoError(t, client.Close())
		})
	}
}

func TestUnusedConnectionsAreClosed(t *testing.T) {
	s := startFake(t, &fakeNode{}, nil, func(c *Config) {
		c.ListenMetricsURLs = []string{loopback}
		c.headTimeout, c.idleTimeout = 50*time.Millisecond, 50*time.Millisecond
	})
	for _, first := range []string{
		"", "PRI", "GET /version HTTP/1.1\r\nHost: a\r\n", "GET /version HTTP/1.1\r\nHost: a\r\n\r\n",
		http2.ClientPreface + string(firstHeaders(t, 0)),
	} {
		c := dialURL(t, s.ClientURLs()[0])
		_, _ = io.WriteString(c, first) // fails if the server closed c already
		requireClosed(t, c)
	}
	for _, first := range []string{"", "GET /metr", "GET /health HTTP/1.1\r\nHost: a\r\n\r\n"} {
		c := dialURL(t, s.MetricsURLs()[0])
		_, _ = io.WriteString(c, first)
		requireClosed(t, c)
	}
}

func TestUnusedTLSConnectionsAreClosed(t *testing.T) {
	ca, d := tlstest.NewAuthority(t, "ca"), tlstest.NewDir(t)
	d.Write(t, ca, "server")
	s := startFake(t, &fakeNode{}, nil, func(c *Config) {
		c.ListenClientURLs, c.ListenMetricsURLs, c.TLS = []string{"https://127.0.0.1:0"}, []string{"https://127.0.0.1:0"}, d.Config
		c.headTimeout = 200 * time.Millisecond
	})
	for _, url := range []string{s.ClientURLs()[0], s.MetricsURLs()[0]} {
		requireClosed(t, dialURL(t, url)) // begins no handshake
		c := tls.Client(dialURL(t, url), ca.ClientConfig(t, nil))
		_ = c.Handshake() // fails if it takes too long
		requireClosed(t, c)
	}
}

// etcd's clients connect before their first call, and keep connections that they do not use.
func TestIdleConnectionsOfGRPCStay(t *testing.T) {
	s := startFake(t, &fakeNode{}, nil, func(c *Config) { c.idleTimeout = 50 * time.Millisecond })
	idle := dialURL(t, s.ClientURLs()[0])
	_, err := io.WriteString(idle, http2.ClientPreface)
	require.NoError(t, err)
	framer := http2.NewFramer(idle, idle)
	require.NoError(t, framer.WriteSettings())
	// The router's settings come first. Those of gRPC show that the time is over.
	for settings := 0; settings < 2; {
		f, err := framer.ReadFrame()
		require.NoError(t, err)
		if f, ok := f.(*http2.SettingsFrame); ok && !f.IsAck() {
			settings++
		}
	}
	ping := [8]byte{1, 2}
	require.NoError(t, framer.WritePing(false, ping))
	for {
		f, err := framer.ReadFrame()
		require.NoError(t, err)
		if f, ok := f.(*http2.PingFrame); ok && f.IsAck() && f.Data == ping {
			break
		}
	}
	require.NoError(t, idle.Close())
}

func TestHeadersAreBounded(t *testing.T) {
	s := startFake(t, &fakeNode{}, nil)
	long := strings.Repeat("a", 2*maxHeaderBytes)
	r, err := http.NewRequestWithContext(testContext(t), http.MethodGet, s.ClientURLs()[0]+"/version", nil)
	require.NoError(t, err)
	r.Header.Set("Cookie", long)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, resp.StatusCode)
	http.DefaultClient.CloseIdleConnections()

	kv := pb.NewKVClient(dial(t, s))
	_, err = kv.Range(testContext(t), &pb.RangeRequest{Key: key})
	require.NoError(t, err)
	_, err = kv.Range(metadata.AppendToOutgoingContext(testContext(t), "long", long), &pb.RangeRequest{Key: key})
	require.ErrorContains(t, err, "header list size")
}

// The first call of a connection may have more metadata than the router keeps.
func TestFirstCallWithMuchMetadata(t *testing.T) {
	s := startFake(t, &fakeNode{}, nil)
	ctx := metadata.AppendToOutgoingContext(testContext(t), "long", strings.Repeat("~", maxRouted+1024))
	_, err := pb.NewKVClient(dial(t, s)).Range(ctx, &pb.RangeRequest{Key: key})
	require.NoError(t, err)
}

func TestUnusedPeerConnectionsAreClosed(t *testing.T) {
	s := startWithPeers(t, &memberNode{fakeNode: &fakeNode{}, id: 44}, func(c *Config) { c.headTimeout = 50 * time.Millisecond })
	for _, first := range []string{"", "PRI", http2.ClientPreface} {
		c := dialURL(t, s.PeerURLs()[0])
		_, _ = io.WriteString(c, first) // fails if the server closed c already
		requireClosed(t, c)
	}
}
