package simulation

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/replica"
	hub "github.com/sqlbrain/sqlbrain/watch"
)

// observe reads the events of a node from inside its process, where no simulated time is between the publication of an
// event and its receiver: by then readers must see the revision of the event. It returns when ctx ends.
func (m *machine) observe(ctx context.Context, p *process, b *replica.Replica) {
	s := b.Hub().NewStream()
	defer s.Close()
	s.Create(hub.Permitted, hub.CreateRequest{Key: []byte{0}, End: []byte{0}})
	for {
		r, err := s.Next(ctx)
		if err != nil || p.dead() {
			return
		}
		shown := b.Revision()
		for _, e := range r.Events {
			if e.Record.ModRevision > shown {
				m.w.fail("%s publishes an event of revision %d when it shows revision %d", p.name, e.Record.ModRevision, shown)
			}
		}
		m.look()
	}
}

// look checks that the revision that the node shows, and the compact revision that it knows, have not gone back.
func (m *machine) look() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.node == nil {
		return
	}
	shown, compacted := m.node.Replica().Revision(), m.node.Replica().CompactRevision()
	if shown < m.shown || compacted < m.compacted {
		m.w.fail("%s shows revision %d, and knows of a compaction at %d; it was at %d and %d", m.name, shown, compacted,
			m.shown, m.compacted)
	}
	m.shown, m.compacted = shown, compacted
	if users := m.w.directory; users != nil {
		if version := m.node.Replica().AuthRows().Version; version < users.required(shown) {
			m.w.fail("%s shows revision %d, and knows users and roles of version %d; they were at %d before", m.name, shown,
				version, users.required(shown))
		}
	}
}

// watchStream is a stream of watches: of a connection, or in the process of a node.
type watchStream interface {
	Send(*pb.WatchRequest) error
	Recv() (*pb.WatchResponse, error)
}

// localStream is a stream in the process of a node. Between a client and a node, connections take answers that the
// client has not asked for yet. Here they stay in the node's queue.
type localStream struct {
	ctx context.Context
	p   *process
	s   *hub.Stream
}

var errGone = errors.New("the process does not run")

// openLocal opens a stream in the process that runs on a machine, until ctx ends.
func (m *machine) openLocal(ctx context.Context) (*localStream, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.node == nil || m.proc.dead() {
		return nil, errGone
	}
	s := m.node.Replica().Hub().NewStream()
	context.AfterFunc(ctx, s.Close)
	return &localStream{ctx, m.proc, s}, nil
}

func (l *localStream) Send(r *pb.WatchRequest) error {
	switch u := r.RequestUnion.(type) {
	case *pb.WatchRequest_CreateRequest:
		c := u.CreateRequest
		request := hub.CreateRequest{
			WatchID: c.WatchId, Key: c.Key, End: c.RangeEnd, StartRevision: c.StartRevision, PrevKV: c.PrevKv,
			ProgressNotify: c.ProgressNotify,
		}
		for _, f := range c.Filters {
			request.NoPut = request.NoPut || f == pb.WatchCreateRequest_NOPUT
			request.NoDelete = request.NoDelete || f == pb.WatchCreateRequest_NODELETE
		}
		l.s.Create(hub.Permitted, request)
	case *pb.WatchRequest_CancelRequest:
		l.s.Cancel(u.CancelRequest.WatchId)
	case *pb.WatchRequest_ProgressRequest:
		l.s.RequestProgress()
	}
	return l.ctx.Err()
}

func (l *localStream) Recv() (*pb.WatchResponse, error) {
	r, err := l.s.Next(l.ctx)
	if err != nil {
		return nil, err
	}
	if l.p.dead() {
		return nil, errGone
	}
	answer := &pb.WatchResponse{
		Header: &pb.ResponseHeader{Revision: r.Revision}, WatchId: r.WatchID,
		Created: r.Created, Canceled: r.Canceled, CancelReason: r.CancelReason, CompactRevision: r.CompactRevision,
	}
	for i, e := range r.Events {
		event := &mvccpb.Event{Kv: keyValue(e.Record)}
		if e.Type == hub.Delete {
			event.Type, event.Kv = mvccpb.Event_DELETE, &mvccpb.KeyValue{Key: e.Record.Key, ModRevision: e.Record.ModRevision}
		}
		if r.Prev != nil && r.Prev[i] != nil {
			event.PrevKv = keyValue(r.Prev[i])
		}
		answer.Events = append(answer.Events, event)
	}
	return answer, nil
}

func keyValue(r *coder.Record) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{
		Key: r.Key, Value: r.Value, Lease: r.Lease, CreateRevision: r.CreateRevision, ModRevision: r.ModRevision,
		Version: r.Version,
	}
}
