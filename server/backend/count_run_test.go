package backend

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// heldCounts is a store whose counts wait until they are let go.
type heldCounts struct {
	sqlstore.Store
	calls   atomic.Int32
	entered chan struct{}
	letGo   chan struct{}
}

func (s *heldCounts) Count(ctx context.Context, lo, hi []byte, upTo int64) (n, newer int64, err error) {
	s.calls.Add(1)
	s.entered <- struct{}{}
	select {
	case <-s.letGo:
		return s.Store.Count(ctx, lo, hi, upTo)
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
}

func openHeldCounts(t *testing.T) (*heldCounts, *Backend) {
	s := &heldCounts{Store: newStore(t), entered: make(chan struct{}, 100), letGo: make(chan struct{})}
	b := open(t, s, func(c *Config) { c.RecordCache = -1 }) // else counts come from memory
	for i := range 3 {
		mustTxn(t, b, put(fmt.Sprint("k", i), ""))
	}
	return s, b
}

func firstPage() *RangeRequest {
	return &RangeRequest{KeyRange: KeyRange{Key: []byte("k"), End: []byte("l")}, Limit: 1}
}

// A list whose count takes longer than its client waits must come to an end some time.
func TestACountOutlivesItsRequest(t *testing.T) {
	s, b := openHeldCounts(t)
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error)
	go func() {
		_, err := b.Range(ctx, firstPage(), true)
		answered <- err
	}()
	<-s.entered
	cancel()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Fatalf("a request whose client went away: %v", err)
	}
	close(s.letGo)
	if res := mustRange(t, b, firstPage()); res.Count != 3 {
		t.Errorf("counted %d of 3 keys", res.Count)
	}
	mustTxn(t, b, put("k3", ""))
	if res := mustRange(t, b, firstPage()); res.Count != 4 {
		t.Errorf("counted %d of 4 keys", res.Count)
	}
	if n := s.calls.Load(); n != 1 {
		t.Errorf("the table was counted %d times", n)
	}
}

func TestManyRequestsShareACount(t *testing.T) {
	s, b := openHeldCounts(t)
	const requests = 10
	answered := make(chan error)
	for range requests {
		go func() {
			res, err := b.Range(t.Context(), firstPage(), true)
			if err == nil && res.Count != 3 {
				err = fmt.Errorf("counted %d of 3 keys", res.Count)
			}
			answered <- err
		}()
	}
	<-s.entered
	close(s.letGo)
	for range requests {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
	if n := s.calls.Load(); n != 1 {
		t.Errorf("the table was counted %d times", n)
	}
}

// Counts nobody waits for must not pile up.
func TestCountsThatOutliveTheirRequestsAreFew(t *testing.T) {
	s, b := openHeldCounts(t)
	const ranges = maxCountRuns + 3
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error)
	for i := range ranges {
		go func() {
			q := firstPage()
			q.End = fmt.Append(nil, "l", i)
			_, err := b.Range(ctx, q, true)
			answered <- err
		}()
	}
	for range ranges {
		<-s.entered
	}
	cancel()
	for range ranges {
		if err := <-answered; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	b.reader.countRuns.mu.Lock()
	defer b.reader.countRuns.mu.Unlock()
	if n := len(b.reader.countRuns.running); n != maxCountRuns {
		t.Errorf("%d counts go on", n)
	}
}
