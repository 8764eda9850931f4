package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/history"
)

// watch is what one watcher on one stream saw.
type watch struct {
	history.Range
	id              int64
	start           int64 // the first revision that it sees; 0: not known yet
	prevKV          bool
	compacted       int64 // a compaction that its node had acknowledged before it was created
	noPut, noDelete bool
	stream          history.Stream
	upTo            int64 // everything up to there was seen, by events or progress notices
	created, ended  bool
	overtaken       bool // it was cancelled by a compaction, and can be cancelled once more
}

// add adds an answer. It returns errWrong if the answer was wrong.
func (s *watch) add(r *pb.WatchResponse) error {
	switch {
	case s.overtaken && r.Canceled && r.CompactRevision == 0:
		s.overtaken = false
		return nil
	case s.ended:
		return fmt.Errorf("%w: an answer after its end: %v", errWrong, r)
	case r.Created == s.created:
		return fmt.Errorf("%w: created %v twice, or not at all", errWrong, r)
	case r.Created && len(r.Events) > 0:
		return fmt.Errorf("%w: created with events: %v", errWrong, r)
	}
	s.created = true
	if r.Created && s.start == 0 {
		s.start = r.Header.Revision + 1
	}
	if r.Canceled {
		s.ended, s.overtaken = true, r.CompactRevision > 0
		if r.CompactRevision > 0 && r.CompactRevision <= max(s.start, s.upTo+1) {
			return fmt.Errorf("%w: cancelled by a compaction at %d, and it needs revision %d", errWrong, r.CompactRevision,
				max(s.start, s.upTo+1))
		}
		return nil
	}
	for _, e := range r.Events {
		switch {
		case e.Kv.ModRevision <= s.upTo:
			return fmt.Errorf("%w: an event of revision %d after a notice of %d", errWrong, e.Kv.ModRevision, s.upTo)
		case e.Kv.ModRevision > r.Header.Revision:
			return fmt.Errorf("%w: an event of revision %d in an answer of revision %d", errWrong, e.Kv.ModRevision,
				r.Header.Revision)
		case e.Kv.ModRevision <= s.compacted && e.PrevKv != nil:
			return fmt.Errorf("%w: an event of revision %d with the version before it, after a compaction at %d", errWrong,
				e.Kv.ModRevision, s.compacted)
		}
	}
	answer := clientv3.WatchResponse{Header: r.Header}
	for _, e := range r.Events {
		answer.Events = append(answer.Events, (*clientv3.Event)(e))
	}
	if err := s.stream.Add(answer); err != nil {
		return fmt.Errorf("%w: %w", errWrong, err)
	}
	if len(r.Events) > 0 {
		s.upTo = max(s.upTo, s.stream.Last())
	} else if !r.Created {
		return s.progress(r)
	}
	return nil
}

// progress adds a notice.
func (s *watch) progress(r *pb.WatchResponse) error {
	switch {
	case r.Header.Revision < s.upTo:
		return fmt.Errorf("%w: a notice of revision %d after %d", errWrong, r.Header.Revision, s.upTo)
	case r.Header.Revision < s.start-1:
		return fmt.Errorf("%w: a notice of revision %d to a watch from %d", errWrong, r.Header.Revision, s.start)
	}
	s.upTo = r.Header.Revision
	return nil
}

// wants reports whether no filter of the watch leaves e out.
func (s *watch) wants(e history.Event) bool {
	return !(s.noPut && !e.Deleted || s.noDelete && e.Deleted)
}

var errWrong = errors.New("watch")

// open opens a stream with one watch, calls each for all its answers until ctx ends or the stream does, and returns
// why.
func (c *client) open(ctx context.Context, request *pb.WatchCreateRequest, each func(*pb.WatchResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewWatchClient(c.connect()).Watch(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(create(request)); err != nil {
		return err
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := each(r); err != nil {
			return err
		}
	}
}

func create(r *pb.WatchCreateRequest) *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}
}

// watching is a stream with several watches.
type watching struct {
	c      *client
	conn   *grpc.ClientConn
	stream pb.Watch_WatchClient
	rnd    *rand.Rand // of the sender

	mu      sync.Mutex
	watches map[int64]*watch // by id
	next    int64
}

// watch follows keys on a stream, starting now or at an old revision, for a while, and then others.
func (c *client) watch(rnd *rand.Rand) {
	defer c.disconnect()
	for !c.over() {
		ctx, cancel := context.WithCancel(context.Background())
		over := time.AfterFunc(100*time.Millisecond+time.Duration(rnd.Int64N(int64(6*time.Second))), func() {
			if !c.keepWatches.Load() {
				cancel()
			}
		})
		err := c.follow(ctx, cancel, rnd)
		over.Stop()
		cancel()
		c.w.trace(c.process.name, "watches ended: %v", err)
		if errors.Is(err, errWrong) {
			c.w.fail("%s at %s: %v", c.process.name, c.node, err)
		}
		if ctx.Err() == nil || rnd.IntN(3) == 0 {
			c.failed(err)
		}
	}
}

// follow opens a stream, and creates and cancels watches on it until ctx ends. A slow client takes answers slowly.
func (c *client) follow(ctx context.Context, cancel func(), rnd *rand.Rand) error {
	conn := c.connect()
	stream, err := pb.NewWatchClient(conn).Watch(ctx)
	if err != nil {
		return err
	}
	f := &watching{c: c, conn: conn, stream: stream, rnd: rand.New(rand.NewPCG(rnd.Uint64(), 0)),
		watches: make(map[int64]*watch)}
	c.mu.Lock()
	c.followed[f] = true
	c.mu.Unlock()
	var sending sync.WaitGroup
	sending.Go(func() {
		f.send(ctx)
		select {
		case <-c.stopped:
			cancel()
		case <-ctx.Done():
		}
	})
	defer func() {
		cancel()
		sending.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.followed, f)
		for _, id := range sortedKeys(f.watches) {
			if s := f.watches[id]; s.created {
				c.watches = append(c.watches, s)
			}
		}
	}()
	slow := c.w.plan.Workload.Slow
	if slow > 0 && rnd.IntN(2) == 0 {
		slow = 0
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		c.w.trace(c.process.name, "answer of watch %d at %d with %d events", r.WatchId, r.Header.Revision, len(r.Events))
		if r.CompactRevision > 0 {
			c.w.trace(c.process.name, "watch %d ended at compact revision %d", r.WatchId, r.CompactRevision)
		}
		if err := f.add(r); err != nil {
			return err
		}
		if slow > 0 && !c.keepWatches.Load() {
			c.pause(slow)
		}
	}
}

// late describes a watch that has not seen all of the account that it has to, if there is one.
func (f *watching) late(account []history.Revision) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range sortedKeys(f.watches) {
		s := f.watches[id]
		if s.created && !s.ended && slices.ContainsFunc(account, func(r history.Revision) bool {
			return r.Number >= max(s.start, s.upTo+1) && slices.ContainsFunc(r.Events, func(e history.Event) bool {
				return s.Contains(e.Key) && s.wants(e)
			})
		}) {
			return fmt.Sprintf("watch %d of [%q, %q) from %d has come to revision %d", s.id, s.Key, s.End, s.start,
				s.upTo)
		}
	}
	return ""
}

// send creates watches, asks for progress and cancels watches, until ctx ends or the clients stop.
func (f *watching) send(ctx context.Context) {
	rnd := f.rnd
	asks := rnd.IntN(2) == 0
	most := 1 + rnd.IntN(3)
	for n := 0; ; n++ {
		var request *pb.WatchRequest
		switch {
		case n < most:
			request = f.create()
		case asks && rnd.IntN(4) > 0:
			request = &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
		case rnd.IntN(3) > 0:
			request = &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 1 + rnd.Int64N(f.next)}}}
		default:
			request = f.create()
		}
		if f.stream.Send(request) != nil {
			return
		}
		if n < most-1 {
			continue
		}
		select {
		case <-time.After(time.Millisecond + time.Duration(rnd.Int64N(int64(400*time.Millisecond)))):
		case <-ctx.Done():
			return
		case <-f.c.stopped:
			return
		}
	}
}

// create returns the request for another watch.
func (f *watching) create() *pb.WatchRequest {
	rnd := f.rnd
	s := &watch{Range: all, prevKV: rnd.IntN(2) == 0, noPut: rnd.IntN(6) == 0}
	s.noDelete = !s.noPut && rnd.IntN(6) == 0
	switch rnd.IntN(3) {
	case 0:
		s.Range = history.Range{Key: fmt.Sprintf("%s%d", prefix, rnd.IntN(f.c.w.plan.Workload.Keys))}
	case 1:
		s.Range = history.Range{Key: "\x00", End: "\x00"}
	}
	if rnd.IntN(2) == 0 {
		s.start = max(1, f.c.recorder.Newest()+5-rnd.Int64N(40))
		if acknowledged, _ := f.c.recorder.Compactions(); rnd.IntN(3) == 0 && acknowledged > 1 {
			s.start = acknowledged - 1 + rnd.Int64N(3)
		}
	}
	f.c.mu.Lock()
	s.compacted = f.c.compacted[f.c.node]
	f.c.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	s.id = f.next
	f.watches[s.id] = s
	request := &pb.WatchCreateRequest{
		WatchId: s.id, Key: []byte(s.Key), RangeEnd: []byte(s.End), PrevKv: s.prevKV, ProgressNotify: rnd.IntN(2) == 0,
		StartRevision: s.start,
	}
	if s.noPut {
		request.Filters = append(request.Filters, pb.WatchCreateRequest_NOPUT)
	}
	if s.noDelete {
		request.Filters = append(request.Filters, pb.WatchCreateRequest_NODELETE)
	}
	return create(request)
}

// add adds an answer to the watch that it is for: to all of them if it has the progress of the stream.
func (f *watching) add(r *pb.WatchResponse) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.watches[r.WatchId]; s != nil {
		if err := s.add(r); err != nil {
			return fmt.Errorf("watch %d of [%q, %q) from %d: %w", s.id, s.Key, s.End, s.start, err)
		}
		return nil
	}
	if r.WatchId != -1 || r.Created || r.Canceled || len(r.Events) > 0 {
		return fmt.Errorf("%w: watch %d does not exist: %v", errWrong, r.WatchId, r)
	}
	for _, id := range sortedKeys(f.watches) {
		if s := f.watches[id]; s.created && !s.ended {
			if err := s.progress(r); err != nil {
				return fmt.Errorf("watch %d of [%q, %q) from %d: %w", s.id, s.Key, s.End, s.start, err)
			}
		}
	}
	return nil
}

// watcher reads all revisions, from the first one on. It connects again when it has to.
type watcher struct {
	c      *client
	cancel context.CancelFunc
	ended  chan struct{}

	mu     sync.Mutex
	stream history.Stream
	seen   map[int64]time.Duration // when a revision was seen first
	grew   chan struct{}
}

// audit starts a watcher of everything.
func (cl *clients) audit() *watcher {
	ctx, cancel := context.WithCancel(context.Background())
	a := &watcher{
		c: cl.newClient("audit", nodes[0]), cancel: cancel, ended: make(chan struct{}),
		seen: make(map[int64]time.Duration), grew: make(chan struct{}),
	}
	go func() {
		defer close(a.ended)
		defer a.c.disconnect()
		for ctx.Err() == nil {
			bounded, stop := context.WithTimeout(ctx, time.Second+time.Duration(a.c.rnd.Int64N(int64(3*time.Second))))
			err := a.c.open(bounded, &pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, StartRevision: a.last() + 1,
				PrevKv: true}, a.add)
			stop()
			if errors.Is(err, errWrong) {
				cl.w.fail("audit at %s: %v", a.c.node, err)
				return
			}
			a.c.pause(100 * time.Millisecond)
			// The next node may be ahead of one that lags.
			a.c.node = nodes[a.c.rnd.IntN(len(nodes))]
			a.c.disconnect()
		}
	}()
	return a
}

func (a *watcher) add(r *pb.WatchResponse) error {
	if r.Canceled {
		return fmt.Errorf("cancelled: %s", r.CancelReason)
	}
	answer := clientv3.WatchResponse{Header: r.Header}
	for _, e := range r.Events {
		answer.Events = append(answer.Events, (*clientv3.Event)(e))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.stream.Add(answer); err != nil {
		return fmt.Errorf("%w: %w", errWrong, err)
	}
	now := time.Since(a.c.w.start)
	for _, e := range r.Events {
		if _, ok := a.seen[e.Kv.ModRevision]; !ok {
			a.seen[e.Kv.ModRevision] = now
		}
	}
	close(a.grew)
	a.grew = make(chan struct{})
	return nil
}

func (a *watcher) last() int64 {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(a.stream.Last(), 1)
}

// await returns when the watcher has seen the revision, or false after most.
func (a *watcher) await(revision int64, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		a.mu.Lock()
		last, grew := a.stream.Last(), a.grew
		a.mu.Unlock()
		if last >= revision {
			return true
		}
		select {
		case <-grew:
		case <-timer.C:
			return false
		}
	}
}

func (a *watcher) stop() {
	a.cancel()
	<-a.ended
}
