package replicated

import (
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/siege"
)

// anotherServerForEachNode lets each node use another server of a Galera, which
// all take writes, so that a node reads where it did not write, and leaders change
// between servers. Servers end during the test, and each node continues with the next one.
func anotherServerForEachNode(t *testing.T, db *harness.Replicated) {
	c := nodesOn(t, func(i int) string { return db.URL(i, (i+1)%db.Size(), (i+2)%db.Size()) })
	s := siege.Lay(t, c, workers, wait)
	for range harness.UsualOrLong(1, 5) {
		s.Progress(settled)
		leader := c.Leader()
		c.Kill(leader) // another one leads, on another server
		s.Progress(settled)
		c.Start(leader)
		gone := c.Leader() // whose server is the first it names
		db.Kill(gone)
		s.Progress(settled)
		db.Start(gone)
	}
	s.Progress(settled)
	s.End()
}
