package guard

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	// loginsFree is how many recent failures of a login have no consequence but its place in the
	// queue. One is forgiven per loginInterval.
	loginsFree    = 10
	loginInterval = 10 * time.Second
	// freshAfter is how long after its last failure an address or a connection counts as one
	// without a failure.
	freshAfter = time.Minute

	// missesFree and missInterval are the same limits for tokens that do not exist. Such
	// calls are refused.
	missesFree   = 100
	missInterval = 50 * time.Millisecond

	// maxSources bounds the number of failed sources that are remembered.
	maxSources = 4096
)

// failures counts the recent failed calls of each source. Success is not recorded: an attacker
// with an account must not be able to reset the count.
type failures[K comparable] struct {
	free     int           // failures without a consequence, and the most that are counted
	interval time.Duration // after which one is forgiven

	mu      sync.Mutex
	sources *simplelru.LRU[K, time.Time] // when all failures so far are forgiven
}

func newFailures[K comparable](free int, interval time.Duration) *failures[K] {
	return &failures[K]{free: free, interval: interval, sources: newLRU[K, time.Time](maxSources)}
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

// count returns how many failures of source are not forgiven, at most free.
func (f *failures[K]) count(source K) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	forgiven, _ := f.sources.Peek(source)
	left := time.Until(forgiven)
	if left <= 0 {
		return 0
	}
	return int((left + f.interval - 1) / f.interval)
}

// limited reports whether source has no free failures left.
func (f *failures[K]) limited(source K) bool { return f.count(source) >= f.free }

// add records that a call of source failed.
func (f *failures[K]) add(source K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	forgiven, _ := f.sources.Get(source)
	if forgiven.Before(now) {
		forgiven = now
	}
	forgiven = forgiven.Add(f.interval)
	if most := now.Add(time.Duration(f.free) * f.interval); forgiven.After(most) {
		forgiven = most
	}
	f.sources.Add(source, forgiven)
}
