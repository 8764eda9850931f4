package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// addressed is a connection from an address.
type addressed struct {
	net.Conn
	from net.Addr
}

func (c addressed) RemoteAddr() net.Addr { return c.from }

// sender is a stream to which messages are sent.
type sender struct {
	grpc.ServerStream
	ctx context.Context
}

func (s sender) Context() context.Context { return s.ctx }
func (s sender) SendMsg(any) error        { return nil }

// The connection of a stream that was answered may reset it, once, and a client cannot save such resets.
func TestResetsOfAnsweredStreamsAreForgiven(t *testing.T) {
	conns := &Connections{}
	answers := NewAnswers(conns, 1<<20, time.Hour)
	client, server := net.Pipe()
	conn := conns.add(addressed{server, &net.TCPAddr{}}, func() {})
	go func() { _, _ = io.Copy(io.Discard, client) }()
	go func() {
		_, _ = client.Write(append([]byte(http2.ClientPreface), firstHeaders(t, http2.FlagHeadersEndHeaders,
			hpack.HeaderField{Name: "content-type", Value: "application/grpc"})...))
	}()
	_, routed, err := NewRouter(nil, conns, NewRequests(1<<20, 1<<20, time.Hour), time.Hour, time.Hour).route(conn)
	require.NoError(t, err)
	in := routed.(*routedConn).in.(*inbound)

	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: conn.RemoteAddr()})
	require.NoError(t, answers.Stream(nil, sender{ctx: ctx}, &grpc.StreamServerInfo{},
		func(_ any, ss grpc.ServerStream) error { return errors.Join(ss.SendMsg(nil), ss.SendMsg(nil)) }))
	require.Equal(t, 1, in.answers.forgive(freeResets))
	require.Zero(t, in.answers.forgive(1))
	for range 2 * freeResets {
		in.answers.answer()
	}
	require.Equal(t, freeResets, in.answers.forgive(3*freeResets))
	require.NoError(t, errors.Join(routed.Close(), client.Close()))
}
