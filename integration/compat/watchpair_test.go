package compat

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/coder"
)

// fenceKey is written to learn how far a stream has come.
const fenceKey = "fence"

// fenceID is where the ids of watches begin that fences use. Ids chosen by a
// server stay far below.
const fenceID = int64(1) << 40

// watchSide is one stream of watches to one server, and all it brought.
type watchSide struct {
	name   string
	stream pb.Watch_WatchClient
	cancel context.CancelFunc
	done   chan struct{} // closed when the stream has ended

	mu        sync.Mutex
	responses []*pb.WatchResponse
	err       error
	more      chan struct{} // closed, and replaced, when there is more of either
}

func (s *side) openWatch(ctx context.Context) (*watchSide, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := pb.NewWatchClient(s.conn).Watch(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	w := &watchSide{name: s.name, stream: stream, cancel: cancel, done: make(chan struct{}), more: make(chan struct{})}
	go w.receive()
	return w, nil
}

func (w *watchSide) receive() {
	defer close(w.done)
	for {
		r, err := w.stream.Recv()
		w.mu.Lock()
		if err != nil {
			w.err = err
		} else {
			w.responses = append(w.responses, r)
		}
		close(w.more)
		w.more = make(chan struct{})
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (w *watchSide) close() {
	w.cancel()
	<-w.done
}

// await waits until enough says so of the responses from the one at from on. It
// returns false if the stream ends or takes too long.
func (w *watchSide) await(from int, enough func([]*pb.WatchResponse) bool) bool {
	limit := time.NewTimer(callWait)
	defer limit.Stop()
	for {
		w.mu.Lock()
		responses, err, more := w.responses[from:], w.err, w.more
		w.mu.Unlock()
		if enough(responses) {
			return true
		}
		if err != nil {
			return false
		}
		select {
		case <-more:
		case <-limit.C:
			return false
		}
	}
}

func (w *watchSide) since(from int) []*pb.WatchResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.responses[from:])
}

// watchPair is one stream of watches to each server.
type watchPair struct {
	etcd, subject *watchSide
	rec           *recording
	asked         []watchAsked // since the last comparison
	seen          [2]int       // responses compared so far, of etcd and the subject
	creates       int          // sent so far
	// slow reports that the subject's queues are so small that any watch may lag.
	// As in etcd, such a watch then gets the missed events with the current header.
	slow    bool
	fences  int64
	watches map[int64]*watchSpec // by id, ended ones too
}

// watchAsked is a request, and whether it was not refused.
type watchAsked struct {
	*pb.WatchRequest
	answered bool
}

// watchSpec is what the comparison needs to know of one watch.
type watchSpec struct {
	asked            *pb.WatchCreateRequest
	prevKV, fragment bool
	ended            bool
	// live reports that etcd sends the watch every revision as it is made. Then the
	// grouping of responses and their headers are deterministic.
	live bool
}

func (p *pair) openWatch() (*watchPair, error) {
	etcd, err := p.etcd.openWatch(context.Background())
	if err != nil {
		return nil, err
	}
	subject, err := p.subject.openWatch(context.Background())
	if err != nil {
		etcd.close()
		return nil, err
	}
	return &watchPair{etcd: etcd, subject: subject, slow: p.slow, watches: make(map[int64]*watchSpec)}, nil
}

func (wp *watchPair) close() {
	wp.etcd.close()
	wp.subject.close()
}

func (wp *watchPair) sides() [2]*watchSide { return [2]*watchSide{wp.etcd, wp.subject} }

func (wp *watchPair) send(r *pb.WatchRequest) error {
	for _, w := range wp.sides() {
		if err := w.stream.Send(r); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

// create sends r to both servers, waits until both answered, and returns
// etcd's answer. revision is the current one.
func (wp *watchPair) create(r *pb.WatchCreateRequest, revision int64) (*pb.WatchResponse, error) {
	m := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}
	if err := wp.send(m); err != nil {
		return nil, err
	}
	wp.creates++
	var answer *pb.WatchResponse
	for _, w := range wp.sides() {
		var last *pb.WatchResponse
		ok := w.await(0, func(rs []*pb.WatchResponse) bool {
			n := 0
			for _, r := range rs {
				if r.Created {
					n++
					last = r
				}
			}
			return n == wp.creates
		})
		if !ok {
			return nil, fmt.Errorf("%s does not answer a create", w.name)
		}
		if answer == nil {
			answer = last
		}
	}
	if r.WatchId < fenceID {
		wp.asked = append(wp.asked, watchAsked{m, !answer.Canceled})
	}
	if !answer.Canceled {
		wp.watches[answer.WatchId] = &watchSpec{
			asked: r, prevKV: r.PrevKv, fragment: r.Fragment, live: r.StartRevision == 0 || r.StartRevision > revision,
		}
	}
	return answer, nil
}

func (wp *watchPair) cancel(id int64) error {
	m := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}}
	spec := wp.watches[id]
	if spec != nil {
		spec.ended = true
	}
	if id < fenceID {
		wp.asked = append(wp.asked, watchAsked{m, spec != nil})
	}
	return wp.send(m)
}

func (wp *watchPair) progress() error {
	m := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
	wp.asked = append(wp.asked, watchAsked{m, true})
	return wp.send(m)
}

// nothing sends a request that is none.
func (wp *watchPair) nothing() error {
	m := &pb.WatchRequest{}
	wp.asked = append(wp.asked, watchAsked{m, true})
	return wp.send(m)
}

// beginFence creates a watch on the fence key. Its answer follows the answers to all
// earlier requests.
func (wp *watchPair) beginFence(revision int64) (id int64, err error) {
	wp.fences++
	id = fenceID + wp.fences
	_, err = wp.create(&pb.WatchCreateRequest{Key: []byte(fenceKey), WatchId: id}, revision)
	return id, err
}

// endFence waits, after the fence key was put, for its event and ends the watch.
// Whatever a server had queued for live watches of the stream by the time of the
// put, at the revision given, was sent before.
func (wp *watchPair) endFence(id, revision int64) (err error) {
	for _, w := range wp.sides() {
		ok := w.await(0, func(rs []*pb.WatchResponse) bool {
			return slices.ContainsFunc(rs, func(r *pb.WatchResponse) bool { return r.WatchId == id && len(r.Events) > 0 })
		})
		if !ok {
			return fmt.Errorf("%s: no event of a live watch (id %d)", w.name, id)
		}
	}
	wp.awaitFence(revision)
	if err := wp.cancel(id); err != nil {
		return err
	}
	for _, w := range wp.sides() {
		ok := w.await(0, func(rs []*pb.WatchResponse) bool {
			return slices.ContainsFunc(rs, func(r *pb.WatchResponse) bool { return r.WatchId == id && r.Canceled })
		})
		if !ok {
			return fmt.Errorf("%s: a cancelled watch (id %d) is not answered", w.name, id)
		}
	}
	return nil
}

// awaitFence waits until etcd has sent the event of the fence to all watches that cover
// it, which it does in no fixed order. The wait is bounded, and a missing event is not an error here.
func (wp *watchPair) awaitFence(revision int64) {
	expected := make(map[int64]bool)
	for id, spec := range wp.watches {
		if spec.seesFence(revision) {
			expected[id] = true
		}
	}
	wp.etcd.await(wp.seen[0], func(rs []*pb.WatchResponse) bool {
		n := 0
		for _, r := range rs {
			told := len(r.Events) > 0 && r.Events[len(r.Events)-1].Kv.ModRevision == revision && !r.Fragment
			if expected[r.WatchId] && (told || r.Canceled) {
				n++
			}
		}
		return n >= len(expected)
	})
}

// seesFence reports whether the watch should get a put of the fence key.
func (s *watchSpec) seesFence(revision int64) bool {
	key := s.asked.Key
	if len(key) == 0 {
		key = []byte{0}
	}
	return !s.ended && s.asked.StartRevision <= revision &&
		!slices.Contains(s.asked.Filters, pb.WatchCreateRequest_NOPUT) &&
		coder.Contains(key, s.asked.RangeEnd, []byte(fenceKey))
}

// compare compares what both streams brought since the last time. etcd's must be
// complete; the subject is waited for until it has brought as much.
func (wp *watchPair) compare() string {
	theirs := byWatch(wp.etcd.since(wp.seen[0]))
	wp.subject.await(wp.seen[1], func(rs []*pb.WatchResponse) bool {
		ours := byWatch(rs)
		for id, want := range theirs {
			if weight(ours[id]) < weight(want) {
				return false
			}
		}
		return true
	})
	all := wp.subject.since(wp.seen[1])
	ours := byWatch(all)
	wp.seen[0] += len(wp.etcd.since(wp.seen[0]))
	wp.seen[1] += len(all)
	ids := make(map[int64]bool)
	for id := range theirs {
		ids[id] = true
	}
	for id := range ours {
		ids[id] = true
	}
	for id := range ids {
		if d := wp.watchDifference(id, theirs[id], ours[id]); d != "" {
			return fmt.Sprintf("watch %d (%+v)\n%s", id, wp.watches[id], d)
		}
	}
	for _, m := range wp.asked {
		wp.rec.request(call{"Watch/Watch", m.WatchRequest}, m.answered)
	}
	wp.asked = nil
	wp.rec.add(func(e *engineResults) {
		for _, rs := range theirs {
			for _, r := range rs {
				e.events += len(r.Events)
			}
		}
	})
	for id, spec := range wp.watches {
		spec.ended = spec.ended || slices.ContainsFunc(theirs[id], func(r *pb.WatchResponse) bool { return r.Canceled })
		spec.live = true // all there was to catch up with has come
	}
	return ""
}

func byWatch(rs []*pb.WatchResponse) map[int64][]*pb.WatchResponse {
	m := make(map[int64][]*pb.WatchResponse)
	for _, r := range rs {
		m[r.WatchId] = append(m[r.WatchId], r)
	}
	return m
}

// weight counts events, and responses that have none.
func weight(rs []*pb.WatchResponse) int {
	n := 0
	for _, r := range rs {
		n += max(1, len(r.Events))
	}
	return n
}

// watchDifference compares what one watch was sent.
func (wp *watchPair) watchDifference(id int64, etcd, subject []*pb.WatchResponse) string {
	spec := wp.watches[id]
	if spec == nil {
		spec = &watchSpec{live: true} // refused creates, and progress of the stream
	}
	if wrong := splitRevision(subject); wrong != "" {
		return "subject: " + wrong
	}
	a, aCuts := normalWatch(spec, etcd, true)
	b, bCuts := normalWatch(spec, subject, false)
	// Without prev_kv, the remaining contents of etcd's responses, and thus their
	// boundaries, are not deterministic: see normalWatch.
	if len(a) == len(b) && spec.live && spec.prevKV && !slices.Equal(aCuts, bCuts) {
		return fmt.Sprintf("fragments: etcd has events %v in each, the subject %v", aCuts, bCuts)
	}
	if wp.slow {
		for _, r := range b {
			if n := len(r.Events); n > 0 && r.Header != nil {
				r.Header.Revision = min(r.Header.Revision, r.Events[n-1].Kv.ModRevision)
			}
		}
	}
	a = joined(a, b)
	for i := range min(len(a), len(b)) {
		if d := messageDifference(a[i], b[i]); d != "" {
			return fmt.Sprintf("response %d of %d and %d: %s", i, len(a), len(b), d)
		}
	}
	if len(a) != len(b) {
		return fmt.Sprintf("etcd:    %s\nsubject: %s", briefWatch(a), briefWatch(b))
	}
	return ""
}

// joined joins responses of etcd where the subject's have more events: commits
// that come before a response has left may share it, as they do in etcd for a
// watch that is slow. The header is that of the last one then.
func joined(etcd, subject []*pb.WatchResponse) (out []*pb.WatchResponse) {
	for i := 0; i < len(etcd); i++ {
		r := etcd[i]
		if n := len(out); n < len(subject) {
			for len(r.Events) > 0 && len(r.Events) < len(subject[n].Events) && i+1 < len(etcd) && len(etcd[i+1].Events) > 0 {
				i++
				etcd[i].Events = append(r.Events, etcd[i].Events...)
				r = etcd[i]
			}
		}
		out = append(out, r)
	}
	return out
}

func briefWatch(rs []*pb.WatchResponse) (s string) {
	for _, r := range rs {
		s += "\n  " + brief(r)
	}
	return s
}

// splitRevision says where the events of one revision are in two responses that
// are not fragments of one.
func splitRevision(rs []*pb.WatchResponse) string {
	last, fragment := int64(0), false
	for _, r := range rs {
		if len(r.Events) == 0 {
			continue
		}
		if first := r.Events[0].Kv.ModRevision; first == last && !fragment {
			return fmt.Sprintf("revision %d is split", first)
		}
		last, fragment = r.Events[len(r.Events)-1].Kv.ModRevision, r.Fragment
	}
	return ""
}

// normalWatch returns copies of rs without the parts that are not deterministic. It
// joins fragments. For a watch that is not live, it splits the events into one response
// each, without a header. cuts are the numbers of events of the original responses.
func normalWatch(spec *watchSpec, rs []*pb.WatchResponse, etcd bool) (out []*pb.WatchResponse, cuts []int) {
	var begun *pb.WatchResponse // fragments so far
	for _, r := range rs {
		r = proto.Clone(r).(*pb.WatchResponse)
		maskHeaders(r.ProtoReflect())
		if etcd && !spec.prevKV {
			// etcd's watches share events: one that asks for the previous versions
			// gives them to others, if it happens to come first.
			for _, e := range r.Events {
				e.PrevKv = nil
			}
		}
		if len(r.Events) == 0 {
			out = append(out, r)
			continue
		}
		cuts = append(cuts, len(r.Events))
		if !spec.live {
			for _, e := range r.Events {
				out = append(out, &pb.WatchResponse{WatchId: r.WatchId, Events: []*mvccpb.Event{e}})
			}
			continue
		}
		if begun != nil {
			r.Events = append(begun.Events, r.Events...)
			begun = nil
		}
		if r.Fragment && spec.fragment {
			begun = r
			continue
		}
		out = append(out, r)
	}
	if begun != nil {
		out = append(out, begun) // the last one is missing, and must differ
	}
	return out, cuts
}

// lastEvents are the events etcd sent to the watches on stream 0, those of fences
// aside.
func (w *world) lastEvents() (events []*mvccpb.Event) {
	if w.streams[0] == nil {
		return nil
	}
	for _, r := range w.streams[0].etcd.since(0) {
		if r.WatchId < fenceID {
			events = append(events, r.Events...)
		}
	}
	return events
}
