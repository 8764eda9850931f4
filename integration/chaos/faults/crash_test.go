package faults

import (
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/siege"
)

// TestKilledNode kills the server (SIGKILL) at random moments under load and
// starts it again: every acknowledged write is there with its revision, no
// transaction is there in part, and revisions go on without a gap.
func TestKilledNode(t *testing.T) {
	rounds := harness.UsualOrLong(5, 100)
	harness.ForEachEngine(t, func(t *testing.T, e harness.Engine) {
		node := harness.StartNode(t, e)
		s := siege.OfNode(t, node)
		crash := func() {
			// Acknowledgements come in bursts, after a commit. A random time
			// after one can be anywhere in the next commit.
			<-time.After(time.Duration(s.Rnd.IntN(5000)) * time.Microsecond)
			node.Kill()
			node.Start()
		}
		for round := range rounds {
			if round > 0 && s.Rnd.IntN(2) == 0 { // half of the rounds compact while they are at it
				s.UnderCompaction(crash)
			} else {
				s.Under(crash)
			}
		}
	})
}

// TestStoppedNode stops the server in order under load: the same holds. A server that stops leaves nothing undecided in
// the database, so one engine is enough.
func TestStoppedNode(t *testing.T) {
	harness.OnAnyEngine(t, func(t *testing.T, e harness.Engine) {
		node := harness.StartNode(t, e)
		s := siege.OfNode(t, node)
		for range 2 {
			s.Under(func() {
				node.Stop()
				node.Start()
			})
		}
	})
}
