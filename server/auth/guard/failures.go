package guard

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

const (
	// loginsFree is how many logins of a source may fail in a row without a delay. One is
	// forgiven per loginInterval.
	loginsFree = 10
	// loginInterval is the time between two logins of a source that has no free ones left.
	loginInterval = time.Second
	// maxLoginDelay bounds a delay. A login that would wait longer is refused.
	maxLoginDelay = 10 * time.Second
	// maxDelayed bounds how many logins wait in all. Others that would wait are refused.
	maxDelayed = 256

	// missesFree and missInterval are the same limits for tokens that do not exist. Such
	// calls are refused, never delayed.
	missesFree   = 100
	missInterval = 50 * time.Millisecond

	// maxSources bounds the number of failed sources that are remembered.
	maxSources = 4096
)

// failures records the sources of failed calls, and delays or refuses their next calls. A
// source is an address, or a network of 64 bits for IPv6. Success is not recorded: an attacker
// with an account must not be able to reset the count.
type failures struct {
	free     int           // failures without a consequence
	interval time.Duration // after which one more is free
	maxDelay time.Duration

	mu      sync.Mutex
	sources *simplelru.LRU[string, *failedSource]
	delayed int
}

func newLoginFailures() *failures {
	return &failures{free: loginsFree, interval: loginInterval, maxDelay: maxLoginDelay, sources: newLRU[string, *failedSource](maxSources)}
}

func newTokenMisses() *failures {
	return &failures{free: missesFree, interval: missInterval, sources: newLRU[string, *failedSource](maxSources)}
}

// newLRU returns a map of at most size entries, which forgets the entry that was not used for
// the longest time.
func newLRU[K comparable, V any](size int) *simplelru.LRU[K, V] {
	m, err := simplelru.NewLRU[K, V](size, nil)
	if err != nil {
		panic(err) // the size is not positive
	}
	return m
}

type failedSource struct {
	// forgiven is when all failures so far are forgiven.
	forgiven time.Time
	// next is when the next call of the source may start, if it is limited.
	next time.Time
}

// limited reports whether source has no free failures left.
func (f *failures) limited(source string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.limitedAt(source, time.Now())
}

func (f *failures) limitedAt(source string, now time.Time) bool {
	s, ok := f.sources.Get(source)
	return ok && s.forgiven.Sub(now) > time.Duration(f.free-1)*f.interval
}

// add records that a call of source failed.
func (f *failures) add(source string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	s, ok := f.sources.Get(source)
	if !ok {
		s = &failedSource{}
		f.sources.Add(source, s)
	}
	if s.forgiven.Before(now) {
		s.forgiven = now
	}
	s.forgiven = s.forgiven.Add(f.interval)
	if most := now.Add(time.Duration(f.free) * f.interval); s.forgiven.After(most) {
		s.forgiven = most
	}
}

// wait returns when a call of source may start; delayed says whether it had to wait. Errors:
// mvcc.ErrTooManyRequests if it would wait too long, or too many wait; ctx's.
func (f *failures) wait(ctx context.Context, source string) (delayed bool, err error) {
	d, err := f.reserve(source)
	if err != nil || d == 0 {
		return d != 0, err
	}
	defer f.leave()
	return true, retry.Sleep(ctx, d)
}

// reserve returns how long a call of source has to wait, and reserves its slot. If the
// delay is not 0, the caller must call leave after it.
func (f *failures) reserve(source string) (time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if !f.limitedAt(source, now) {
		return 0, nil
	}
	s, _ := f.sources.Get(source)
	start := now.Add(f.interval)
	if s.next.After(start) {
		start = s.next
	}
	d := start.Sub(now)
	if d > f.maxDelay || f.delayed >= maxDelayed {
		return 0, mvcc.ErrTooManyRequests
	}
	s.next = start.Add(f.interval)
	f.delayed++
	return d, nil
}

func (f *failures) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delayed--
}
