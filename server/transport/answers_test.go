package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
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

// pipes is a listener whose connections have no buffers.
type pipes chan net.Conn

func (l pipes) Accept() (net.Conn, error) {
	c, ok := <-l
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (l pipes) Close() error   { return nil }
func (l pipes) Addr() net.Addr { return &net.UnixAddr{} }

// postPiped returns the answer of h to body, which a client of HTTP/1 or HTTP/2 has read the head of.
func postPiped(t *testing.T, h http.Handler, h2 bool, body io.Reader) *http.Response {
	t.Helper()
	l := make(pipes, 1)
	s := NewHTTPServer(h, time.Hour, time.Hour)
	go func() { _ = s.Serve(l) }()
	client := &http.Transport{Protocols: new(http.Protocols), DialContext: func(context.Context, string,
		string) (net.Conn, error) {
		near, far := net.Pipe()
		l <- far
		return near, nil
	}}
	client.Protocols.SetHTTP1(!h2)
	client.Protocols.SetUnencryptedHTTP2(h2)
	t.Cleanup(func() {
		client.CloseIdleConnections()
		close(l)
		require.NoError(t, s.Close())
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/", body)
	require.NoError(t, err)
	resp, err := client.RoundTrip(r)
	require.NoError(t, err)
	return resp
}

// TestUnreadAnswersOfHTTPEnd: after the progress timeout, or earlier if the answers exceed the budget.
func TestUnreadAnswersOfHTTPEnd(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		for most, after := range map[int]time.Duration{1 << 20: stalledAfter, 1 << 30: time.Minute} {
			synctest.Test(t, func(t *testing.T) {
				answers := NewAnswers(&Connections{}, most, time.Minute)
				const size = 16 << 20
				failed := make(chan error, 1)
				began := time.Now()
				resp := postPiped(t, answers.HTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, err := w.Write(make([]byte, size))
					failed <- err
				})), h2, nil)
				synctest.Wait()
				require.EqualValues(t, size, answers.Bytes())
				require.Error(t, <-failed)
				require.Equal(t, after, time.Since(began))
				synctest.Wait()
				require.Zero(t, answers.Bytes())
				_, err := io.Copy(io.Discard, resp.Body)
				require.Error(t, err)
				require.NoError(t, resp.Body.Close())
			})
		}
	}
}

// TestQuietAnswersOfHTTPContinue: a client that waits for more keeps its stream.
func TestQuietAnswersOfHTTPContinue(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			answers := NewAnswers(&Connections{}, 1<<20, time.Minute)
			resp := postPiped(t, answers.HTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for range 3 {
					_, err := io.WriteString(w, "event\n")
					require.NoError(t, errors.Join(err, http.NewResponseController(w).Flush()))
					time.Sleep(time.Hour)
				}
			})), h2, nil)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, errors.Join(err, resp.Body.Close()))
			require.Equal(t, "event\nevent\nevent\n", string(body))
		})
	}
}

// The budget may have chosen to end a request while its handler returned. HTTP/2 uses the writer again then.
func TestBodyIsNotEndedAfterItsHandler(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var b *body
			resp := postPiped(t, NewRequests(1<<20, 1<<20, time.Hour).Bodies(http.HandlerFunc(
				func(_ http.ResponseWriter, r *http.Request) {
					b = r.Body.(*body)
					_, err := io.Copy(io.Discard, b)
					require.NoError(t, err)
				})), h2, strings.NewReader("{}"))
			synctest.Wait()
			require.NotPanics(t, b.claim.end)
			require.NoError(t, resp.Body.Close())
		})
	}
}
