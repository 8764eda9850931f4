package fence

import (
	"errors"
	"sync/atomic"

	"github.com/sqlbrain/sqlbrain/coder"
)

// missingSequences is how far ObserveLoss raises the known sequence: farther than members
// raise the fence row, and less than a recovery does.
const missingSequences = RecoveredSequences >> 10

// Seen is the newest value of the fence row that this process knows of, and the newest
// term. If the database later holds older values, it has lost data. Seen is safe for concurrent use.
type Seen struct {
	revision func() int64 // the newest revision that this process shows
	token    atomic.Pointer[coder.FenceToken]
	term     atomic.Int64
	missing  atomic.Bool // ObserveLoss was called
}

// NewSeen returns a Seen that knows nothing yet. revision returns the newest revision that
// this process shows, 1 if it shows none.
func NewSeen(revision func() int64) *Seen {
	s := &Seen{revision: revision}
	s.token.Store(&coder.FenceToken{})
	return s
}

// Observe records a value of the fence row.
func (s *Seen) Observe(c coder.FenceToken) {
	for {
		cur := s.token.Load()
		if c.Sequence <= cur.Sequence || s.token.CompareAndSwap(cur, &c) {
			break
		}
	}
	s.ObserveTerm(c.Term)
}

// ObserveTerm records a term, as a feed reports it.
func (s *Seen) ObserveTerm(term int64) {
	for {
		cur := s.term.Load()
		if term <= cur || s.term.CompareAndSwap(cur, term) {
			return
		}
	}
}

// ObserveLoss records a loss that the fence row does not show: a commit took effect although a
// row that it replaced was missing, or a revision in the table is another one than the process has
// shown. So the process counts as having seen more than the fence row can reach without a recovery.
func (s *Seen) ObserveLoss() {
	if s.missing.Swap(true) {
		return // it stays below what a recovery adds
	}
	beyond := s.Token()
	beyond.Sequence += missingSequences
	s.Observe(beyond)
}

// Token returns the newest value of the fence row that was observed.
func (s *Seen) Token() coder.FenceToken { return *s.token.Load() }

// Term returns the newest term that was observed.
func (s *Seen) Term() int64 { return s.term.Load() }

// Newest returns Token with the newest revision that this process shows, which it may know
// from the leader and not from the row.
func (s *Seen) Newest() coder.FenceToken {
	newest := s.Token()
	if rev := s.revision(); rev > 1 { // a new table is at revision 1 before it has a fence row
		newest.Revision = max(newest.Revision, rev)
	}
	return newest
}

// Verifier returns a function that returns ErrDataLost for a value of the fence row that
// is older than what this process has seen now. Call Verifier before reading the row.
func (s *Seen) Verifier() func(coder.FenceToken) error {
	newest := s.Newest()
	return func(cur coder.FenceToken) error {
		if err := CheckToken(newest, cur); errors.Is(err, ErrDataLost) {
			return err
		}
		return nil
	}
}
