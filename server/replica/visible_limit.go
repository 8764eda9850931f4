package replica

import (
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/server/fence"
)

// visibleLimit decides up to which revision of the table a follower may make commits visible. A
// commit is in the table before its leader knows. Until then the leader answers reads
// without it, and a client that saw the commit on a follower would then not see it on the
// leader. So a revision may become visible once the leader has reported it, or once it has been
// in the table for fence.TakeoverWait: by then the read lease from before the commit has
// expired, and to renew it the leader reads the fence row, finds the commit, and waits
// for it (fence.Authority). Safe for concurrent use.
type visibleLimit struct {
	mu      sync.Mutex
	limit   int64             // the newest revision that may be visible
	pending []pendingRevision // those above it, in order of both revision and time
}

// pendingRevision is a revision that was first seen in the table at a time.
type pendingRevision struct {
	revision int64
	at       time.Time
}

// raise records that rev is visible on the leader.
func (v *visibleLimit) raise(rev int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.limit = max(v.limit, rev)
}

// observe records that rev was in the table at a time.
func (v *visibleLimit) observe(rev int64, at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.pending); n == 0 || v.pending[n-1].revision < rev {
		v.pending = append(v.pending, pendingRevision{rev, at})
	}
}

// revision returns the newest revision that may be visible at a time.
func (v *visibleLimit) revision(at time.Time) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	for len(v.pending) > 0 && at.Sub(v.pending[0].at) >= fence.TakeoverWait {
		v.limit = max(v.limit, v.pending[0].revision)
		v.pending = v.pending[1:]
	}
	return v.limit
}
