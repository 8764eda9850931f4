package console

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sqlbrain/sqlbrain/server/auth/guard"
)

const (
	// maxRendering bounds the requests that render values or wait for that, and maxRenderingOfOne those of them that
	// one visitor makes: a page makes three.
	maxRendering      = 16
	maxRenderingOfOne = 6
	// renderingTimeout bounds the wait of one of them.
	renderingTimeout = 10 * time.Second
)

// rendering admits requests that make values readable or compare them: that takes processor time and memory in
// proportion to the values. A quarter of the processors works for them, one at least and four at most, in the order of
// arrival. Safe for concurrent use.
type rendering struct {
	slots   *semaphore.Weighted
	timeout time.Duration

	mu       sync.Mutex
	admitted int
	of       map[string]int // admitted by visitor
}

func newRendering() *rendering {
	slots := min(max(1, runtime.GOMAXPROCS(0)/4), 4)
	return &rendering{slots: semaphore.NewWeighted(int64(slots)), timeout: renderingTimeout, of: map[string]int{}}
}

var (
	errTooManyRendering = failure{http.StatusTooManyRequests, "too many requests show or compare values: try again"}
	errRenderingBusy    = failure{http.StatusServiceUnavailable,
		"other requests that show or compare values take too long: try again"}
)

// begin waits for a slot, which the caller must give back by calling done.
func (q *rendering) begin(ctx context.Context, visitor string) (done func(), err error) {
	if !q.admit(visitor) {
		return nil, errTooManyRendering
	}
	bounded, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	if err := q.slots.Acquire(bounded, 1); err != nil {
		q.leave(visitor)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, errRenderingBusy
	}
	return func() {
		q.slots.Release(1)
		q.leave(visitor)
	}, nil
}

func (q *rendering) admit(visitor string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.admitted == maxRendering || q.of[visitor] == maxRenderingOfOne {
		return false
	}
	q.admitted++
	q.of[visitor]++
	return true
}

func (q *rendering) leave(visitor string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.admitted--
	if q.of[visitor]--; q.of[visitor] == 0 {
		delete(q.of, visitor)
	}
}

// encoded is an answer that is JSON already.
type encoded []byte

// renders is an endpoint that renders values. Its answer is encoded before the next one's turn; that it is sent is not
// waited for.
func (h *Handler) renders(e endpoint) endpoint {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		// By address: a token is not verified yet, and one visitor could make up many.
		done, err := h.rendering.begin(r.Context(), guard.HostOf(r.RemoteAddr))
		if err != nil {
			w.Header().Set("Retry-After", "2")
			return nil, err
		}
		defer done()
		out, err := e(w, r)
		if _, raw := out.(file); raw || err != nil {
			return out, err
		}
		return marshal(out)
	}
}
