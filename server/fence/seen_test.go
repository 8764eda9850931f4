package fence

import (
	"errors"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
)

func TestSeenVerifierRefusesWhatIsOlder(t *testing.T) {
	revision := int64(1)
	s := NewSeen(func() int64 { return revision })
	if err := s.Verifier()(coder.FenceToken{}); err != nil {
		t.Errorf("a new process: %v", err)
	}
	s.Observe(coder.FenceToken{Sequence: 7, Term: 3, Revision: 5})
	s.Observe(coder.FenceToken{Sequence: 6, Term: 2, Revision: 4})
	s.ObserveTerm(4)
	if s.Token() != (coder.FenceToken{Sequence: 7, Term: 3, Revision: 5}) || s.Term() != 4 {
		t.Errorf("%+v, term %d", s.Token(), s.Term())
	}
	revision = 6 // the leader reported one more
	verify := s.Verifier()
	if err := verify(coder.FenceToken{Sequence: 7, Term: 3, Revision: 5}); !errors.Is(err, ErrDataLost) {
		t.Errorf("an older revision: %v", err)
	}
	if err := verify(coder.FenceToken{Sequence: 9, Term: 4, Revision: 6}); err != nil {
		t.Errorf("a later term: %v", err)
	}
	s.ObserveLoss()
	if err := s.Verifier()(coder.FenceToken{Sequence: 1 << 30, Term: 4, Revision: 100}); !errors.Is(err, ErrDataLost) {
		t.Errorf("after a row was missing: %v", err)
	}
	if err := s.Verifier()(coder.FenceToken{Sequence: 7 + RecoveredSequences, Term: 3 + RecoveredTerms,
		Revision: 6}); err != nil {
		t.Errorf("after a recovery: %v", err)
	}
}

// TestMissingStaysBelowARecovery: a member finds the same loss again and again.
func TestMissingStaysBelowARecovery(t *testing.T) {
	s := seenAt(coder.FenceToken{Sequence: 7, Term: 1, Revision: 5})
	for range 2000 {
		s.ObserveLoss()
	}
	if got := s.Token(); got.Sequence <= 7 || got.Sequence >= RecoveredSequences {
		t.Errorf("%+v", got)
	}
}
