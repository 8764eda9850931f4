package replica

import (
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/server/fence"
)

// visibility decides which revisions a follower may show that it found in the table. A
// commit is in the table before its leader knows. Until then the leader answers reads
// without it, and a client that saw the commit on a follower would then not see it on the
// leader. So a revision may be shown once the leader has reported it, or once it has been
// in the table for fence.TakeoverWait: by then the read lease from before the commit has
// expired, and to renew it the leader looks at the fence row, finds the commit, and waits
// for it (fence.Authority).
type visibility struct {
	mu       sync.Mutex
	reported int64   // the newest revision that may be shown
	found    []found // those above it, in order of both revision and time
}

// found is a revision that was first seen in the table at a time.
type found struct {
	revision int64
	at       time.Time
}

// report records that the leader shows rev.
func (v *visibility) report(rev int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reported = max(v.reported, rev)
}

// find records that rev was in the table at a time.
func (v *visibility) find(rev int64, at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.found); n == 0 || v.found[n-1].revision < rev {
		v.found = append(v.found, found{rev, at})
	}
}

// newest returns the newest revision that may be shown at a time.
func (v *visibility) newest(at time.Time) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	for len(v.found) > 0 && at.Sub(v.found[0].at) >= fence.TakeoverWait {
		v.reported = max(v.reported, v.found[0].revision)
		v.found = v.found[1:]
	}
	return v.reported
}
