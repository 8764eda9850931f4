package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// narrow returns a connection whose windows have the least size, and do not grow.
func narrow(t *testing.T, s *Server) *grpc.ClientConn {
	t.Helper()
	return dial(t, s, grpc.WithStaticStreamWindowSize(65535), grpc.WithStaticConnWindowSize(64<<20))
}

// TestAnswersThatAreNotTakenEndTheConnection: a client that calls and takes none of the answers loses its connection
// once these are more than the server may hold. Another connection does not notice.
func TestAnswersThatAreNotTakenEndTheConnection(t *testing.T) {
	s := startReplica(t, func(c *Config) { c.AnswerBytes = 1 << 20 })
	kv := pb.NewKVClient(dial(t, s))
	_, err := kv.Put(testContext(t), &pb.PutRequest{Key: key, Value: make([]byte, 1<<20)})
	require.NoError(t, err)
	c := newFrames(t, s, 0)
	for stream := uint32(1); stream < 10; stream += 2 {
		c.call(stream, "/etcdserverpb.KV/Range", frameOf(t, &pb.RangeRequest{Key: key}), true)
	}
	eventually.True(t, "answers to be held", func() bool { return s.answers.Bytes() >= 5<<20 })
	for err = nil; err == nil; {
		_, err = c.framer.ReadFrame()
	}
	require.ErrorIs(t, err, io.EOF)
	eventually.True(t, "nothing to be held", func() bool { return s.answers.Bytes() == 0 })
	_, err = kv.Range(testContext(t), &pb.RangeRequest{Key: key})
	require.NoError(t, err)
}

// frames is a client that speaks HTTP/2 frame by frame.
type frames struct {
	t      *testing.T
	conn   net.Conn
	framer *http2.Framer
}

func newFrames(t *testing.T, s *Server, window uint32) *frames {
	t.Helper()
	conn, err := net.Dial("tcp", s.clients[0].Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(eventually.Deadline)))
	c := &frames{t, conn, http2.NewFramer(conn, conn)}
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	require.NoError(t, c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
	return c
}

func (c *frames) call(stream uint32, method string, data []byte, end bool) {
	c.t.Helper()
	var head strings.Builder
	e := hpack.NewEncoder(&head)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		require.NoError(c.t, e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	require.NoError(c.t, c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream,
		BlockFragment: []byte(head.String()), EndHeaders: true}))
	require.NoError(c.t, c.framer.WriteData(stream, end, data))
}

// await reads frames until one is what it waits for.
func (c *frames) await(is func(http2.Frame) bool) {
	c.t.Helper()
	for found := false; !found; {
		frame, err := c.framer.ReadFrame()
		require.NoError(c.t, err)
		found = is(frame)
	}
}

func frameOf(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	require.NoError(t, err)
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)
}

// TestUnfinishedMessagesEnd: a message that the client does not finish is reset, whatever the method, and the other
// calls of its connection continue.
func TestUnfinishedMessagesEnd(t *testing.T) {
	s := startReplica(t, func(c *Config) { c.requestProgressTimeout = 200 * time.Millisecond })
	c := newFrames(t, s, 1<<20)
	put := frameOf(t, &pb.PutRequest{Key: key, Value: make([]byte, 10_000)})
	methods := []string{"/etcdserverpb.KV/Put", "/etcdserverpb.Watch/Watch", "/etcdserverpb.Lease/LeaseKeepAlive",
		"/etcdserverpb.KV/RangeStream"}
	for i, method := range methods {
		c.call(uint32(2*i+1), method, put[:5000], false)
	}
	reset := make(map[uint32]bool)
	c.await(func(frame http2.Frame) bool {
		if f, ok := frame.(*http2.RSTStreamFrame); ok {
			require.Equal(t, http2.ErrCodeProtocol, f.ErrCode)
			reset[f.StreamID] = true
		}
		return len(reset) == len(methods)
	})
	require.Zero(t, s.requests.Bytes())
	c.call(101, "/etcdserverpb.KV/Put", put, true)
	c.await(func(frame http2.Frame) bool {
		f, ok := frame.(*http2.HeadersFrame)
		return ok && f.StreamID == 101 && f.StreamEnded()
	})
	got, err := pb.NewKVClient(dial(t, s)).Range(testContext(t), &pb.RangeRequest{Key: key})
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
}

// TestUnfinishedBodiesEnd: the same of a request of the JSON API, with and without the length of its body, and of the
// request of a stream.
func TestUnfinishedBodiesEnd(t *testing.T) {
	s := startReplica(t, func(c *Config) { c.requestProgressTimeout = 200 * time.Millisecond })
	for name, head := range map[string]string{
		"length": "POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"key\":",
		"chunks": "POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{\"key\":\r\n",
		"watch":  "POST /v3/watch HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{\"key\":\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", s.clients[0].Addr().String())
			require.NoError(t, err)
			defer conn.Close() //nolint:errcheck // the server closes it
			require.NoError(t, conn.SetDeadline(time.Now().Add(eventually.Deadline)))
			_, err = io.WriteString(conn, head)
			require.NoError(t, err)
			_, err = io.ReadAll(conn)
			require.NoError(t, err, "the server ends it")
			eventually.True(t, "nothing to be held", func() bool { return s.requests.Bytes() == 0 })
		})
	}
	resp, err := http.Post(s.ClientURLs()[0]+"/v3/kv/put", "application/json",
		strings.NewReader(`{"key":"aw==","value":"dg=="}`))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	http.DefaultClient.CloseIdleConnections()
}

// TestDroppedBodyIsNotHeld: what follows a request of a stream that is not JSON is read and dropped.
func TestDroppedBodyIsNotHeld(t *testing.T) {
	s := startReplica(t)
	conn, err := net.Dial("tcp", s.clients[0].Addr().String())
	require.NoError(t, err)
	defer conn.Close() //nolint:errcheck // nothing is left to be sent
	require.NoError(t, conn.SetDeadline(time.Now().Add(eventually.Deadline)))
	_, err = io.WriteString(conn, "POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"+
		`{"create_request":{"key":"aw=="}}`+strings.Repeat("x", 24<<20))
	require.NoError(t, err)
	require.Zero(t, s.requests.Bytes())
}

// TestRequestsOfAStreamAreCounted: the length of its body says nothing of those after the first.
func TestRequestsOfAStreamAreCounted(t *testing.T) {
	fake := newFakeStream()
	s := startFake(t, &fakeNode{}, fake)
	conn, err := net.Dial("tcp", s.clients[0].Addr().String())
	require.NoError(t, err)
	defer conn.Close() //nolint:errcheck // nothing is left to be sent
	_, err = io.WriteString(conn, "POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"+
		`{"create_request":{"key":"aw=="}}`)
	require.NoError(t, err)
	<-fake.requests
	require.Zero(t, s.requests.Bytes())
	_, err = io.WriteString(conn, `{"create_request":{"key":"`+strings.Repeat("a", 1<<20))
	require.NoError(t, err)
	eventually.True(t, "what was sent to be held", func() bool { return s.requests.Bytes() > 1<<20 })
}

// TestUnreadAnswersOfHTTPEnd: clients that read nothing of their answers keep neither those in memory nor their places
// in the console.
func TestUnreadAnswersOfHTTPEnd(t *testing.T) {
	s := startReplica(t, func(c *Config) { c.Console, c.answerProgressTimeout = true, 300*time.Millisecond })
	kv := pb.NewKVClient(dial(t, s))
	for i := range byte(160) {
		_, err := kv.Put(testContext(t), &pb.PutRequest{Key: []byte{'k', i}, Value: bytes.Repeat([]byte("x"), 64<<10)})
		require.NoError(t, err)
	}
	// ask returns an answer of which little more than the head was read.
	ask := func(request string) *http.Response {
		conn, err := net.Dial("tcp", s.clients[0].Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4096))
		_, err = io.WriteString(conn, request)
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
		require.NoError(t, err)
		return resp
	}
	const list = `{"key":"aw==","range_end":"bA=="}`
	resp := ask(fmt.Sprintf("POST /v3/kv/range HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(list), list))
	eventually.True(t, "nothing to be held", func() bool { return s.answers.Bytes() == 0 })
	_, err := io.ReadAll(resp.Body)
	require.Error(t, err)

	const watch = "GET /ui/api/watch?prefix=1&revision=2 HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for range 64 { // places
		ask(watch)
	}
	eventually.True(t, "a place", func() bool { return ask(watch).StatusCode == http.StatusOK })
}
