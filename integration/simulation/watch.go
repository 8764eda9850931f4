package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/history"
)

// watch is what one watcher on one stream saw.
type watch struct {
	history.Range
	start  int64 // the first revision that it sees
	prevKV bool
	stream history.Stream
	upTo   int64 // everything up to there was seen, by events or progress notices
}

// add adds an answer. It returns an error if the watch has ended, or was wrong (errWrong).
func (s *watch) add(r *pb.WatchResponse) error {
	before := s.upTo
	for _, e := range r.Events {
		if e.Kv.ModRevision <= before {
			return fmt.Errorf("%w: an event of revision %d after a notice of %d", errWrong, e.Kv.ModRevision, before)
		}
	}
	if r.Canceled {
		return fmt.Errorf("cancelled: %s, compact revision %d", r.CancelReason, r.CompactRevision)
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
		s.upTo = max(s.upTo, r.Header.Revision)
	}
	return nil
}

var errWrong = errors.New("watch")

// open opens a watch, calls each for all its answers until ctx ends or the watch does, and returns why.
func (c *client) open(ctx context.Context, request *pb.WatchCreateRequest, ask time.Duration, each func(*pb.WatchResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewWatchClient(c.connect()).Watch(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: request}}); err != nil {
		return err
	}
	var asking sync.WaitGroup
	defer func() { cancel(); asking.Wait() }()
	if ask > 0 {
		asking.Go(func() {
			t := time.NewTicker(ask)
			defer t.Stop()
			for {
				select {
				case <-t.C:
				case <-ctx.Done():
					return
				}
				if stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}) != nil {
					return
				}
			}
		})
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

// watch follows keys, starting now or at an old revision, for a while, and then others.
func (c *client) watch(rnd *rand.Rand) {
	defer c.disconnect()
	for !c.over() {
		s := &watch{Range: all, prevKV: rnd.IntN(2) == 0}
		switch rnd.IntN(3) {
		case 0:
			s.Range = history.Range{Key: c.key()}
		case 1:
			s.Range = history.Range{Key: "\x00", End: "\x00"}
		}
		request := &pb.WatchCreateRequest{Key: []byte(s.Key), RangeEnd: []byte(s.End), PrevKv: s.prevKV, ProgressNotify: rnd.IntN(2) == 0, Fragment: false}
		if rnd.IntN(2) == 0 {
			request.StartRevision = max(1, c.recorder.Newest()+5-rnd.Int64N(40))
			s.start = request.StartRevision
		}
		var ask time.Duration
		if rnd.IntN(2) == 0 {
			ask = 20*time.Millisecond + time.Duration(rnd.Int64N(int64(500*time.Millisecond)))
		}
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond+time.Duration(rnd.Int64N(int64(6*time.Second))))
		ends := make(chan struct{})
		go func() {
			defer close(ends)
			select {
			case <-c.stopped:
				cancel()
			case <-ctx.Done():
			}
		}()
		c.w.trace(c.process.name, "watch [%q, %q) from %d", s.Key, s.End, s.start)
		created := false
		err := c.open(ctx, request, ask, func(r *pb.WatchResponse) error {
			if r.Created && s.start == 0 {
				s.start = r.Header.Revision + 1
			}
			created = created || r.Created && !r.Canceled
			c.w.trace(c.process.name, "watch answer at %d with %d events", r.Header.Revision, len(r.Events))
			return s.add(r)
		})
		cancel()
		<-ends
		c.w.trace(c.process.name, "watch ended at %d: %v", s.upTo, err)
		if errors.Is(err, errWrong) {
			c.w.fail("%s at %s, from %d: %v", c.process.name, c.node, s.start, err)
		}
		if created {
			c.mu.Lock()
			c.watches = append(c.watches, s)
			c.mu.Unlock()
		}
		if ctx.Err() == nil || rnd.IntN(3) == 0 {
			c.failed(err)
		}
	}
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
			err := a.c.open(bounded, &pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, StartRevision: a.last() + 1, PrevKv: true}, 0, a.add)
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
