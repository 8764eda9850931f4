package read

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/keyspace"
)

// heldReads are the reads of a gatherer, which wait until they are released.
type heldReads struct {
	gatherer[string]
	mu      sync.Mutex
	sizes   []int
	fits    int // how many keys a read takes; 0: all
	now     int // the state that the next read sees
	release chan error
}

func newHeldReads() *heldReads {
	h := &heldReads{release: make(chan error)}
	h.gatherer = gatherer[string]{timeout: mvcc.NewTimeout(time.Minute), read: h.read,
		found: func(v string) bool { return v != "" }}
	return h
}

func (h *heldReads) read(ctx context.Context, keys [][]byte) ([]string, bool, error) {
	h.mu.Lock()
	h.sizes = append(h.sizes, len(keys))
	seen := h.now
	h.mu.Unlock()
	select {
	case err := <-h.release:
		values := make([]string, len(keys))
		fits := min(len(keys), cmp.Or(h.fits, len(keys)))
		for i, k := range keys[:fits] {
			values[i] = fmt.Sprintf("%s@%d", k, seen)
		}
		return values, fits < len(keys), err
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
}

// getAll gets n keys, named after name, in goroutines of their own, and returns when all wait.
func (h *heldReads) getAll(ctx context.Context, name string, n int) (results map[string]error, wait func()) {
	results = make(map[string]error)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			v, err := h.get(ctx, fmt.Appendf(nil, "%s%d", name, i))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				v = fmt.Sprintf("%s%d", name, i)
			}
			results[v] = err
		})
	}
	synctest.Wait()
	return results, wg.Wait
}

// A caller gets what a read sees that began after it came, however many reads are under way.
func TestGatheredReadsBeginAfterTheirCallersCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldReads()
		early, earlyCame := h.getAll(t.Context(), "early", maxReads)
		h.now = 1 // a commit that the reads under way do not see
		late, lateCame := h.getAll(t.Context(), "late", 3)
		for range maxReads {
			h.release <- nil
		}
		earlyCame()
		synctest.Wait()
		h.release <- nil
		lateCame()
		synctest.Wait()
		require.Len(t, early, maxReads)
		for v := range early {
			require.Contains(t, v, "@0")
		}
		require.Equal(t, map[string]error{"late0@1": nil, "late1@1": nil, "late2@1": nil}, late)
		require.Equal(t, []int{1, 1, 3}, h.sizes, "what came while reads were under way is one read")
		require.Zero(t, h.reads)
	})
}

// A read is bounded, and those that are beyond it are the next one.
func TestGatheredReadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldReads()
		const n = maxReads + 2*maxReadKeys + 5
		all, came := h.getAll(t.Context(), "k", n)
		for range maxReads + 3 {
			h.release <- nil
			synctest.Wait()
		}
		came()
		require.Len(t, all, n)
		require.Equal(t, []int{1, 1, maxReadKeys, maxReadKeys, 5}, h.sizes)
	})
}

// What does not fit in the bytes of a read is read next, and the reads after it are as small as the values are large.
func TestGatheredReadsAreBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldReads()
		h.fits = 2
		const n = maxReads + 9
		all, came := h.getAll(t.Context(), "k", n)
		for range maxReads + 4 {
			h.release <- nil
			synctest.Wait()
		}
		h.fits = 0 // now they are small
		for len(all) < n {
			h.release <- nil
			synctest.Wait()
		}
		came()
		require.Len(t, all, n)
		for v, err := range all {
			require.NoError(t, err, v)
			require.Contains(t, v, "@")
		}
		require.Equal(t, []int{1, 1, 9, 2, 4, 2, 1}, h.sizes)
		require.Zero(t, h.reads)
	})
}

// A read that no caller waits for ends, and with it its statement.
func TestGatheredReadEndsWithItsLastCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldReads()
		ctx, leave := context.WithCancel(t.Context())
		first, firstCame := h.getAll(t.Context(), "first", maxReads)
		_, goneCame := h.getAll(ctx, "gone", 3)
		for range maxReads {
			h.release <- nil
		}
		firstCame()
		synctest.Wait()
		require.Len(t, first, maxReads)
		require.Equal(t, 1, h.reads)
		leave()
		goneCame()
		synctest.Wait()
		require.Zero(t, h.reads)
	})
}

// A caller that leaves does not end the read of others, nor is its key read if it left before the read began.
func TestCallersLeaveGatheredReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldReads()
		ctx, leave := context.WithCancel(t.Context())
		first, firstCame := h.getAll(t.Context(), "first", maxReads)
		gone, goneCame := h.getAll(ctx, "gone", 2)
		stay, stayCame := h.getAll(t.Context(), "stay", 2)
		for range maxReads {
			h.release <- nil
		}
		firstCame()
		synctest.Wait()
		require.Len(t, first, maxReads)
		require.Equal(t, []int{1, 1, 4}, h.sizes)
		queued, queuedCame := h.getAll(t.Context(), "next", maxReads-1) // takes the other read
		left, leftCame := h.getAll(ctx, "left", 3)
		leave()
		goneCame()
		leftCame()
		require.Equal(t, map[string]error{"gone0": context.Canceled, "gone1": context.Canceled}, gone)
		require.Len(t, left, 3)
		for range maxReads {
			h.release <- nil
		}
		stayCame()
		queuedCame()
		synctest.Wait()
		require.Equal(t, map[string]error{"stay0@0": nil, "stay1@0": nil}, stay)
		require.Len(t, queued, maxReads-1)
		require.Equal(t, []int{1, 1, 4, 1}, h.sizes, "keys of callers that left were read")
		require.Zero(t, h.reads)
	})
}

// All callers of a read that fails get its error, and one that does not end ends with the timeout.
func TestGatheredReadsFailTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldReads()
		broken := errors.New("broken")
		all, came := h.getAll(t.Context(), "k", maxReads+2)
		for range maxReads {
			h.release <- nil
		}
		synctest.Wait()
		h.release <- broken
		came()
		failed := 0
		for _, err := range all {
			if err != nil {
				require.ErrorIs(t, err, broken)
				failed++
			}
		}
		require.Equal(t, 2, failed)

		ctx, cancel := h.timeout.Bound(t.Context())
		defer cancel()
		slow, came := h.getAll(ctx, "k", maxReads+2)
		came()
		require.Len(t, slow, maxReads+2)
		for _, err := range slow {
			require.ErrorIs(t, mvcc.PublicError(ctx, err), mvcc.ErrTimeout)
		}
		synctest.Wait()
		time.Sleep(2 * time.Minute) // the reads end, and with them their goroutines
		require.Zero(t, h.reads)
	})
}

// The sequencer, in whose way all writes are, does not wait until other reads end.
func TestSequencerReadsAlone(t *testing.T) {
	n, r := newTestNode(t, keyspace.Config{})
	n.commit("a", []byte("1"))
	r.lookups.reads, r.rows.reads = maxReads, maxReads // as if none of them ended
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, value := range []bool{true, false} {
		rec, err := r.At(n.rev).Get(ctx, []byte("a"), value)
		require.NoError(t, err)
		require.NotNil(t, rec)
	}
}
