package guard

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

const (
	// lookupsAtATime bounds the concurrent lookups of tokens in the table, and
	// lookupsWaiting the calls that wait for one.
	lookupsAtATime = 8
	lookupsWaiting = 1024
	// missingFor is how long a token that is not in the table is refused without another
	// lookup, and maxMissing bounds how many such tokens are remembered.
	missingFor = 10 * time.Second
	maxMissing = 16384
)

// tokenLookups reads simple tokens from the table. Unknown tokens cost the database little:
// calls with the same token share one read, a missing token is remembered for missingFor,
// and a source that sends many of them is refused.
//
// Remembering that a token is missing is safe on every node: a client receives a token after
// its row was committed, so a token that is missing when presented cannot appear later.
type tokenLookups struct {
	slots   *semaphore.Weighted // of lookups
	waiting atomic.Int64        // calls that wait for a slot
	misses  *failures[string]   // of addresses

	mu      sync.Mutex
	running map[coder.TokenHash]*lookup
	missing *simplelru.LRU[coder.TokenHash, time.Time] // until when
}

// lookup is one read, which has ended when done is closed.
type lookup struct {
	done  chan struct{}
	row   coder.Token
	found bool
	err   error
}

func newTokenLookups() tokenLookups {
	return tokenLookups{
		slots: semaphore.NewWeighted(lookupsAtATime), misses: newFailures[string](missesFree, missInterval),
		running: make(map[coder.TokenHash]*lookup), missing: newLRU[coder.TokenHash, time.Time](maxMissing),
	}
}

func newLookups() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sqlbrain_auth_token_lookups_total",
		Help: "Tokens looked for in the table: found, missing, failed, or refused because their source sent too many that " +
			"are missing.",
	}, []string{"result"})
}

// lookup returns the row of a token that this node has not seen. Errors: those of
// LookupToken, mvcc.ErrTooManyRequests, ctx's.
func (g *Guard) lookup(ctx context.Context, h coder.TokenHash) (row coder.Token, found bool, err error) {
	source := SourceAddress(ctx)
	for {
		l, mine := g.tokens.lookups.begin(h)
		if l == nil {
			return row, false, nil
		}
		if mine {
			g.read(ctx, source, h, l)
			return l.row, l.found, l.err
		}
		select {
		case <-l.done:
		case <-ctx.Done():
			return row, false, ctx.Err()
		}
		if errors.Is(l.err, context.Canceled) || errors.Is(l.err, context.DeadlineExceeded) {
			continue // the call that made the read was cancelled, or had less time
		}
		return l.row, l.found, l.err
	}
}

// begin returns the current read of a token. If there is none it returns a new one with
// mine set, which the caller must make. It returns nil if the token is known not to exist.
func (t *tokenLookups) begin(h coder.TokenHash) (l *lookup, mine bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if until, ok := t.missing.Get(h); ok && time.Now().Before(until) {
		return nil, false
	}
	if l := t.running[h]; l != nil {
		return l, false
	}
	l = &lookup{done: make(chan struct{})}
	t.running[h] = l
	return l, true
}

// read makes the read l and wakes the calls that wait for it.
func (g *Guard) read(ctx context.Context, source string, h coder.TokenHash, l *lookup) {
	t := &g.tokens.lookups
	defer t.end(h, l)
	result := "failed"
	defer func() { g.lookups.WithLabelValues(result).Inc() }()
	if t.misses.limited(source) {
		result, l.err = "refused", mvcc.ErrTooManyRequests
		return
	}
	if l.err = t.acquire(ctx); l.err == nil {
		l.row, l.found, l.err = g.users.LookupToken(ctx, h)
		t.slots.Release(1)
	}
	switch {
	case l.err != nil:
	case l.found:
		result = "found"
		g.tokens.add(h, l.row)
	default:
		result = "missing"
		t.misses.add(source)
	}
}

// acquire waits for a slot. Errors: mvcc.ErrTooManyRequests if lookupsWaiting calls wait already, ctx's.
func (t *tokenLookups) acquire(ctx context.Context) error {
	if t.slots.TryAcquire(1) {
		return nil
	}
	defer t.waiting.Add(-1)
	if t.waiting.Add(1) > lookupsWaiting {
		return mvcc.ErrTooManyRequests
	}
	return t.slots.Acquire(ctx, 1)
}

func (t *tokenLookups) end(h coder.TokenHash, l *lookup) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.running, h)
	if l.err == nil && !l.found {
		t.missing.Add(h, time.Now().Add(missingFor))
	}
	close(l.done)
}
