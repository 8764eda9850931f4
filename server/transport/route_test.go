package transport

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

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
func startRouter(t *testing.T) (*Router, *pipeListener) {
	l := newPipeListener()
	r := NewRouter(l, &Connections{}, NewRequests(1<<20, 1<<20, time.Hour), time.Hour, time.Hour)
	done := make(chan error, 1)
	go func() { done <- r.Serve() }()
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
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/version"},
		{Name: ":authority", Value: "a"},
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
		"gRPC": {append([]byte(http2.ClientPreface),
			firstHeaders(t, whole, hpack.HeaderField{Name: "content-type", Value: "application/grpc+proto"})...), true},
		"gRPC behind its metadata": {append([]byte(http2.ClientPreface),
			firstHeaders(t, whole, large, hpack.HeaderField{Name: "content-type", Value: "application/grpc"})...), true},
		"JSON": {append([]byte(http2.ClientPreface),
			firstHeaders(t, whole, hpack.HeaderField{Name: "content-type", Value: "application/json"})...), false},
		"no body": {append([]byte(http2.ClientPreface), firstHeaders(t, whole)...), false},
		"no request": {append([]byte(http2.ClientPreface), 0, 0, 8, byte(http2.FramePing), 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7,
			8), true},
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
