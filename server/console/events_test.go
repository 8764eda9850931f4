package console

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
)

// unknownTimes are Keys of a database that does not answer.
type unknownTimes struct{ openKeys }

func (unknownTimes) CommitOf(context.Context, int64) (history.Commit, error) {
	return history.Commit{}, errors.New("made up")
}

// scriptedWatch is a watch with these answers.
type scriptedWatch struct {
	pb.Watch_WatchClient
	answers []*pb.WatchResponse
}

func (s *scriptedWatch) Watch(context.Context, ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	return s, nil
}
func (s *scriptedWatch) Send(*pb.WatchRequest) error { return nil }
func (s *scriptedWatch) Recv() (*pb.WatchResponse, error) {
	if len(s.answers) == 0 {
		return nil, io.EOF
	}
	next := s.answers[0]
	s.answers = s.answers[1:]
	return next, nil
}

// TestWatchGoesOnWithoutTimes: a time that cannot be read does not end the watch.
func TestWatchGoesOnWithoutTimes(t *testing.T) {
	h := testHandler(func(c *Config) { c.Keys = unknownTimes{} })
	h.watches = &scriptedWatch{answers: []*pb.WatchResponse{
		{Header: &pb.ResponseHeader{Revision: 5}},
		{Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Key: []byte("k"), ModRevision: 6, Version: 1}}}},
		{Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Key: []byte("k"), ModRevision: 7, Version: 2}}}},
	}}
	var got []eventBody
	lines := json.NewDecoder(visit(t.Context(), h, "192.0.2.1", "watch?key=aw").Body)
	for lines.More() {
		var e eventBody
		require.NoError(t, lines.Decode(&e))
		require.Empty(t, e.Time)
		got = append(got, e)
	}
	require.Len(t, got, 4)
	require.EqualValues(t, 7, got[2].Revision)
	require.Equal(t, "EOF", got[3].Error)
}

func TestLongValuesOfEventsAreNotMadeReadable(t *testing.T) {
	h := testHandler(func(*Config) {})
	value := []byte(`{"a":"` + strings.Repeat("x", diffBytes) + `"}`)
	e := h.event(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil),
		&mvccpb.Event{Kv: &mvccpb.KeyValue{Value: value}})
	require.Equal(t, len(value), e.Bytes)
	require.Equal(t, kindJSON, e.Kind)
	require.Empty(t, e.Text)
}

// quietWatch is a watch without changes.
type quietWatch struct {
	scriptedWatch
	ctx   context.Context
	asked chan struct{}
}

func (q *quietWatch) Watch(ctx context.Context, _ ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	q.ctx = ctx
	return q, nil
}

func (q *quietWatch) Send(r *pb.WatchRequest) error {
	if r.GetProgressRequest() != nil {
		close(q.asked)
	}
	return nil
}

func (q *quietWatch) Recv() (*pb.WatchResponse, error) {
	if len(q.answers) > 1 {
		return q.scriptedWatch.Recv()
	}
	select {
	case <-q.asked:
		q.asked = nil
		return q.scriptedWatch.Recv()
	case <-q.ctx.Done():
		return nil, q.ctx.Err()
	}
}

// TestQuietWatchEndsWithProgress: the next one begins there, not at a revision that may be compacted.
func TestQuietWatchEndsWithProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := testHandler(func(c *Config) { c.Keys = openKeys{} })
		h.watches = &quietWatch{asked: make(chan struct{}), scriptedWatch: scriptedWatch{answers: []*pb.WatchResponse{
			{Header: &pb.ResponseHeader{Revision: 5}}, {Header: &pb.ResponseHeader{Revision: 9}},
		}}}
		began := time.Now()
		lines := visit(t.Context(), h, "192.0.2.1", "watch?key=aw").Body.String()
		require.Equal(t, watchTime, time.Since(began))
		require.Equal(t, `{"revision":5,"bytes":0}
{"revision":9,"progress":true,"bytes":0}
`, lines)
	})
}
