package watch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// One publisher, a compactor and many clients at once, for the race detector;
// each client checks that its watches miss nothing: every revision changes every
// key.
func TestConcurrentClients(t *testing.T) {
	const clients, revisions = 24, 1500
	seed := rand.Uint64()
	b := newBed(t, Config{RingEvents: 64, QueueEvents: 8})
	b.hub.meetMost = 8
	b.src.step = 100
	var flaky atomic.Int64
	b.src.fail = func() error {
		if flaky.Add(1)%50 == 0 {
			return errFlaky
		}
		return nil
	}
	keys := []string{"a", "b", "c", "d"}
	var done atomic.Bool
	var wg sync.WaitGroup
	fail := func(format string, args ...any) { t.Errorf("seed %d: "+format, append([]any{seed}, args...)...) }

	for c := range clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(c)))
			for !done.Load() {
				k := keys[rng.IntN(len(keys))]
				req := CreateRequest{Key: []byte(k), PrevKV: rng.IntN(2) == 0}
				if rng.IntN(2) == 0 {
					req.StartRevision = max(1, b.hub.Revision()-rng.Int64N(300))
				}
				follow(b, rng, req, revisions+1, fail)
			}
		})
	}
	for n := range revisions {
		var changes []change
		for _, k := range keys {
			changes = append(changes, change{k, fmt.Sprint(n)})
		}
		b.publish(b.src.commit(n%2 == 0, changes...))
		if n%100 == 99 {
			b.compact(b.hub.Revision() - 250)
		}
		for range n % 7 {
			b.hub.NewStream().Close() // something else to contend with
		}
	}
	done.Store(true)
	wg.Wait()
	require.EqualValues(t, revisions+1, b.hub.Revision())
}

// follow reads one watch for a random while, or until it has the last revision.
func follow(b *bed, rng *rand.Rand, req CreateRequest, last int64, fail func(string, ...any)) {
	s := b.hub.NewStream()
	defer s.Close()
	s.Create(Permitted, req)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	next := req.StartRevision
	for left := rng.IntN(400); left > 0 && next <= last; left-- {
		if rng.IntN(10) == 0 {
			s.RequestProgress()
		}
		r, err := s.Next(ctx)
		if err != nil {
			if !errors.Is(err, ErrClosed) {
				fail("next: %v", err)
			}
			return
		}
		switch {
		case r.Created:
			next = max(next, 1)
			if req.StartRevision == 0 {
				next = r.Revision + 1
			}
		case r.Canceled:
			if next >= r.CompactRevision {
				fail("canceled at %d, compacted %d", next, r.CompactRevision)
			}
			return
		case len(r.Events) == 0:
			// The keys change in every revision.
			if r.Revision >= max(next, 2) && r.Revision >= req.StartRevision {
				fail("progress %d overtook revision %d", r.Revision, next)
			}
		}
		for i, e := range r.Events {
			if rev := e.Record.ModRevision; rev != max(next, 2) {
				fail("revision %d instead of %d", rev, next)
				return
			}
			if req.PrevKV && r.Prev[i] != nil && r.Prev[i].ModRevision != e.PrevRevision {
				fail("the version before %d is %d", e.Record.ModRevision, r.Prev[i].ModRevision)
			}
			next = e.Record.ModRevision + 1
		}
	}
}
