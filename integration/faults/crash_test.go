package faults

import (
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/load"
)

// TestKilledNode kills the server (SIGKILL) at random moments under load and
// starts it again: every acknowledged write is there with its revision, no
// transaction is there in part, and revisions go on without a gap.
func TestKilledNode(t *testing.T) {
	rounds := harness.UsualOrLong(5, 100)
	harness.ForEachEngine(t, func(t *testing.T, e harness.Engine) {
		node := harness.StartNode(t, e)
		s := newSiege(t, node)
		for range rounds {
			// Half of the rounds compact while they are at it.
			compacts := s.verifier.Revision() > 1 && s.rnd.IntN(2) == 0
			if compacts {
				s.oldest = s.verifier.Revision()
			}
			s.under(func(*load.Load) {
				s.progress(50 + s.rnd.IntN(500))
				crash := func() {
					// Acknowledgements come in bursts, after a commit. A random time
					// after one can be anywhere in the next commit.
					<-time.After(time.Duration(s.rnd.IntN(5000)) * time.Microsecond)
					node.Kill()
					node.Start()
				}
				if compacts {
					s.compact(crash)
				} else {
					crash()
				}
				s.progress(50)
			})
		}
	})
}

// TestStoppedNode stops the server in order under load: the same holds. A server that stops leaves nothing undecided in
// the database, so one engine is enough.
func TestStoppedNode(t *testing.T) {
	harness.OnAnyEngine(t, func(t *testing.T, e harness.Engine) {
		node := harness.StartNode(t, e)
		s := newSiege(t, node)
		for range 2 {
			s.under(func(*load.Load) {
				s.progress(200)
				node.Stop()
				node.Start()
				s.progress(50)
			})
		}
	})
}
