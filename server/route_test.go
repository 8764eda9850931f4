package server

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/server/tlsfiles/tlstest"
	"github.com/sqlbrain/sqlbrain/server/transport"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
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
	require.NoError(t, c.SetReadDeadline(time.Now().Add(eventually.Deadline)))
	_, err := io.Copy(io.Discard, c)
	var timeout net.Error
	require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "the connection is still open")
	require.NoError(t, c.Close())
}

// routedBytes is how much of a connection the router keeps.
const routedBytes = 32 * 1024

func TestUnusedConnectionsAreClosed(t *testing.T) {
	s := startFake(t, &fakeNode{}, nil, func(c *Config) {
		c.ListenMetricsURLs = []string{loopback}
		c.headTimeout, c.idleTimeout = 50*time.Millisecond, 50*time.Millisecond
	})
	for _, first := range []string{
		"", "PRI", "GET /version HTTP/1.1\r\nHost: a\r\n", "GET /version HTTP/1.1\r\nHost: a\r\n\r\n",
		// headers without an end
		http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82",
	} {
		c := dialURL(t, s.ClientURLs()[0])
		_, _ = io.WriteString(c, first) // fails if the server closed c already
		requireClosed(t, c)
	}
	for _, first := range []string{"", "GET /metr", "GET /health HTTP/1.1\r\nHost: a\r\n\r\n"} {
		c := dialURL(t, metricsURLs(s)[0])
		_, _ = io.WriteString(c, first)
		requireClosed(t, c)
	}
}

func TestUnusedTLSConnectionsAreClosed(t *testing.T) {
	ca, d := tlstest.NewServer(t)
	s := startFake(t, &fakeNode{}, nil, func(c *Config) {
		c.ListenClientURLs, c.ListenMetricsURLs, c.TLS = []string{loopbackTLS}, []string{loopbackTLS},
			d.Config
		c.headTimeout = 200 * time.Millisecond
	})
	for _, url := range []string{s.ClientURLs()[0], metricsURLs(s)[0]} {
		requireClosed(t, dialURL(t, url)) // begins no handshake
		half := dialURL(t, url)
		_, err := half.Write([]byte{22, 3, 1, 2, 0, 1}) // the beginning of a ClientHello
		require.NoError(t, err)
		requireClosed(t, half)
		c := tls.Client(dialURL(t, url), ca.ClientConfig(t, nil))
		_ = c.Handshake() // fails if it takes too long
		requireClosed(t, c)
	}
}

// etcd's clients connect before their first call, and keep connections that they do not use.
func TestIdleConnectionsOfGRPCStay(t *testing.T) {
	s := startFake(t, &fakeNode{}, nil, func(c *Config) { c.idleTimeout = 50 * time.Millisecond })
	idle := newFrames(t, s, 65535)
	// The router's settings come first. Those of gRPC show that the time is over.
	for range 2 {
		idle.await(func(f http2.Frame) bool {
			settings, ok := f.(*http2.SettingsFrame)
			return ok && !settings.IsAck()
		})
	}
	sent := [8]byte{1, 2}
	require.NoError(t, idle.framer.WritePing(false, sent))
	idle.await(func(f http2.Frame) bool {
		ping, ok := f.(*http2.PingFrame)
		return ok && ping.IsAck() && ping.Data == sent
	})
}

func TestHeadersAreBounded(t *testing.T) {
	s := startFake(t, &fakeNode{}, nil)
	long := strings.Repeat("a", 2*transport.MaxHeaderBytes)
	r, err := http.NewRequestWithContext(testContext(t), http.MethodGet, s.ClientURLs()[0]+"/version", nil)
	require.NoError(t, err)
	r.Header.Set("Cookie", long)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close()) // its end may be lost: the server closes the connection
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
	ctx := metadata.AppendToOutgoingContext(testContext(t), "long", strings.Repeat("~", routedBytes+1024))
	_, err := pb.NewKVClient(dial(t, s)).Range(ctx, &pb.RangeRequest{Key: key})
	require.NoError(t, err)
}

func TestUnusedPeerConnectionsAreClosed(t *testing.T) {
	s := startWithPeers(t, &fakeNode{id: 44},
		func(c *Config) { c.headTimeout = 50 * time.Millisecond })
	for _, first := range []string{"", "PRI", http2.ClientPreface} {
		c := dialURL(t, peerURLs(s)[0])
		_, _ = io.WriteString(c, first) // fails if the server closed c already
		requireClosed(t, c)
	}
}
