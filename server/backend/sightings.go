package backend

import (
	"sync"
	"time"
)

// sightings tells which revisions that a follower found in the table it may show.
// A commit is in the table before its leader knows, and until then the leader
// answers reads without it: a client that saw the commit on a follower would see it
// gone. When the leader has told of a revision it may be shown. Else it may be once
// it has been in the table for takeoverWait: by then the leader's read lease from
// before the commit is over, and for a new one it looks at the chain row, finds the
// commit, and waits for it (authority.go).
type sightings struct {
	mu    sync.Mutex
	told  int64      // the newest revision the leader has told of
	found []sighting // what was found later, in order of both revision and time
}

type sighting struct {
	revision int64
	at       time.Time
}

// raise notes that the leader shows rev.
func (s *sightings) raise(rev int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = max(s.told, rev)
}

// add notes that rev was found in the table at the moment at.
func (s *sightings) add(rev int64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.found); n == 0 || s.found[n-1].revision < rev {
		s.found = append(s.found, sighting{rev, at})
	}
}

// newest returns the newest revision that may be shown at the moment at.
func (s *sightings) newest(at time.Time) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.found) > 0 && at.Sub(s.found[0].at) >= takeoverWait {
		s.told = max(s.told, s.found[0].revision)
		s.found = s.found[1:]
	}
	return s.told
}
