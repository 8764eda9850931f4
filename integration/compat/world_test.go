package compat

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// streamsOpen is how many streams of watches a history uses at most.
const streamsOpen = 3

// world is the run of one history: both servers, and what the next request may
// refer to. All of that comes from etcd's answers.
type world struct {
	p   *pair
	rec *recording

	revision    int64
	compacted   int64          // 0 before the first compaction
	compactions map[int64]bool // etcd answers HashKV from a cache there
	leases      []int64        // granted and not revoked
	streams     [streamsOpen]*watchPair
	behind      int // watches with a start in the past since the last settle

	steps int      // begun
	trace []string // the requests sent
	diff  string   // the first difference
}

func newWorld(p *pair, rec *recording) *world {
	return &world{p: p, rec: rec, revision: 1, compactions: make(map[int64]bool)}
}

func (w *world) close() {
	for i, s := range w.streams {
		if s != nil {
			s.close()
			w.streams[i] = nil
		}
	}
}

// failed reports whether a difference was found. Later results are then meaningless.
func (w *world) failed() bool { return w.diff != "" }

func (w *world) differ(where, d string) {
	if d != "" && w.diff == "" {
		w.diff = where + "\n" + d
	}
}

// ask sends a request to both servers, compares the answers, and returns etcd's.
func (w *world) ask(method string, req proto.Message) answer {
	c := call{method, req}
	w.trace = append(w.trace, c.String())
	etcd, subject := w.p.ask(c)
	w.compare(c, etcd, subject)
	w.learn(etcd)
	return etcd
}

// compare compares what the servers answered to c.
func (w *world) compare(c call, etcd, subject answer) {
	d := difference(c, etcd, subject)
	if d == "" {
		w.rec.request(c, etcd.err == nil)
	}
	w.differ(c.String(), d)
}

// learn takes the revision from the header of an answer.
func (w *world) learn(a answer) {
	for _, m := range a.messages {
		r := m.ProtoReflect()
		f := r.Descriptor().Fields().ByName("header")
		if f == nil || !r.Has(f) {
			continue
		}
		h := r.Get(f).Message().Interface().(*pb.ResponseHeader)
		w.revision = max(w.revision, h.Revision)
	}
}

// run executes the steps of a history in order, until both servers differ. Each
// step draws from a separate source, so that any steps can be left out.
func (w *world) run(seed uint64, steps []int) {
	for _, step := range steps {
		r := rand.New(rand.NewPCG(seed, uint64(step)))
		w.steps++
		w.rec.onPage = seed <= pageSeeds && step < pageSteps
		pick(r)(w, r)
		if w.failed() {
			return
		}
	}
	w.settle()
	w.rec.onPage = false
	w.rec.add(func(e *engineResults) {
		e.histories++
		e.steps += w.steps
	})
}

// stream returns one of the streams, which it opens if need be.
func (w *world) stream(i int) *watchPair {
	if w.streams[i] == nil {
		s, err := w.p.openWatch()
		if err != nil {
			w.differ("opening a stream of watches", err.Error())
			return nil
		}
		s.rec = w.rec
		w.streams[i] = s
	}
	return w.streams[i]
}

// settle waits until both servers have sent all they have to send to the watches,
// and compares it.
func (w *world) settle() {
	if w.failed() || !slices.ContainsFunc(w.streams[:], func(s *watchPair) bool { return s != nil }) {
		return
	}
	w.trace = append(w.trace, "settle")
	if w.behind > 0 {
		w.awaitCaughtUp()
		w.behind = 0
	}
	var ids [streamsOpen]int64
	for i, s := range w.streams {
		if s == nil {
			continue
		}
		var err error
		if ids[i], err = s.beginFence(w.revision); err != nil {
			w.differ("settle", err.Error())
			return
		}
	}
	w.putFence()
	for i, s := range w.streams {
		if s == nil || w.failed() {
			continue
		}
		if err := s.endFence(ids[i], w.revision); err != nil {
			w.differ("settle", err.Error())
			return
		}
		w.differ(fmt.Sprintf("stream %d", i), s.compare())
	}
}

func (w *world) putFence() {
	c := call{"KV/Put", &pb.PutRequest{Key: []byte(fenceKey)}}
	etcd, subject := w.p.ask(c)
	w.compare(c, etcd, subject)
	w.learn(etcd)
}

// awaitCaughtUp waits until etcd has caught up every watch that starts in the
// past. etcd does so for all of them together, from time to time, so that one
// more such watch shows when it is done.
func (w *world) awaitCaughtUp() {
	w.putFence()
	s, err := w.p.etcd.openWatch(context.Background())
	if err != nil {
		w.differ("settle", err.Error())
		return
	}
	defer s.close()
	r := &pb.WatchCreateRequest{Key: []byte(fenceKey), StartRevision: w.revision}
	if err := s.stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}); err != nil {
		w.differ("settle", err.Error())
		return
	}
	if !s.await(0, func(rs []*pb.WatchResponse) bool {
		return slices.ContainsFunc(rs, func(r *pb.WatchResponse) bool { return len(r.Events) > 0 })
	}) {
		w.differ("settle", "etcd does not catch a watch up")
	}
}

// events returns all events starting at revision from, as one server sends them, each
// in a separate response.
func (s *side) events(from, to int64) ([]proto.Message, error) {
	watch, err := s.openWatch(context.Background())
	if err != nil {
		return nil, err
	}
	defer watch.close()
	r := &pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, StartRevision: from, PrevKv: true}
	if err := watch.stream.Send(
		&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}); err != nil {
		return nil, err
	}
	var all []proto.Message
	ok := watch.await(0, func(rs []*pb.WatchResponse) bool {
		all = nil
		for _, r := range rs {
			for _, e := range r.Events {
				all = append(all, e)
			}
			if r.Canceled {
				all = append(all, r)
				return true
			}
		}
		return len(all) > 0 && all[len(all)-1].(*mvccpb.Event).Kv.ModRevision >= to
	})
	if !ok {
		return nil, fmt.Errorf("%s: a watch from revision %d does not come to revision %d, after %d events", s.name, from,
			to, len(all))
	}
	return all, nil
}
