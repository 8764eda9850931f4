package faults

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/siege"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// outageTime is how long a database is away where that is a choice.
func outageTime() time.Duration {
	return time.Duration(harness.UsualOrLong(3, 30)) * time.Second
}

// database is what goes away in these tests: the server under sqlbrain, or etcd
// itself where that is the target.
type database interface {
	Start()
	Stop()
	Kill()
	Pause()
	Resume()
}

// etcdAsDatabase lets the same tests be run with etcd.
type etcdAsDatabase struct {
	*harness.Node
	t *testing.T
}

func (e etcdAsDatabase) Pause()  { e.Process().Pause(e.t) }
func (e etcdAsDatabase) Resume() { e.Process().Resume(e.t) }

// forEachDatabase runs test on a node over each product of a database server, or
// on etcd.
func forEachDatabase(t *testing.T, test func(t *testing.T, node *harness.Node, db database)) {
	t.Helper()
	if harness.TargetIsEtcd() {
		node := harness.StartNodeOn(t, t.TempDir())
		test(t, node, etcdAsDatabase{node, t})
		return
	}
	harness.ForEachServer(t, func(t *testing.T, p enginetest.Product) {
		server := p.StartServer(t)
		test(t, harness.StartNodeOn(t, server.URL()), server)
	})
}

// outages runs a load over each of them and verifies everything. The server must continue by itself when the database
// is back.
func outages(t *testing.T, node *harness.Node, all ...func(s *siege.Siege)) {
	t.Helper()
	s := siege.OfNode(t, node)
	for _, away := range all {
		s.Under(func() { away(s) })
	}
	if !harness.TargetIsEtcd() {
		require.True(t, node.Process().Running(), "the server ended")
	}
}

// TestDatabaseLost shuts the database down in order, kills it (SIGKILL) and freezes it: then connections are open, and
// silent.
func TestDatabaseLost(t *testing.T) {
	kills := harness.UsualOrLong(2, 20)
	forEachDatabase(t, func(t *testing.T, node *harness.Node, db database) {
		stopped := func(*siege.Siege) { db.Stop(); db.Start() }
		killed := func(*siege.Siege) { db.Kill(); db.Start() }
		frozen := func(*siege.Siege) { db.Pause(); <-time.After(outageTime()); db.Resume() }
		outages(t, node, slices.Concat([]func(*siege.Siege){stopped, stopped, frozen},
			slices.Repeat([]func(*siege.Siege){killed}, kills))...)
	})
}

// TestDatabaseNetwork makes the network between sqlbrain and the database fail.
func TestDatabaseNetwork(t *testing.T) {
	harness.NeedsDatabase(t)
	harness.ForEachServer(t, databaseNetwork)
}

func databaseNetwork(t *testing.T, p enginetest.Product) {
	t.Run("fails", func(t *testing.T) {
		proxy, url := harness.StartProxy(t, p.Database(t))
		during := func(fail func(*harness.Proxy)) func(*siege.Siege) {
			return func(*siege.Siege) { fail(proxy); <-time.After(outageTime()); proxy.Heal() }
		}
		outages(t, harness.StartNodeOn(t, url), during((*harness.Proxy).Refuse), during((*harness.Proxy).Swallow),
			// The commits under way are carried out or not, and sqlbrain has to find out.
			func(s *siege.Siege) {
				for range harness.UsualOrLong(20, 500) {
					s.Progress(1 + s.Rnd.IntN(30))
					<-time.After(time.Duration(s.Rnd.IntN(3000)) * time.Microsecond)
					proxy.Cut()
				}
			})
	})
	// Only a timeout reveals a dead connection. The usual run uses shorter timeouts
	// than the default settings.
	t.Run("connections go silent", func(t *testing.T) {
		proxy, url := harness.StartProxy(t, p.Database(t))
		flags := []string{"--commit-timeout=1s"}
		if harness.Long() {
			flags = nil
		} else {
			url += "?timeout=1s"
		}
		silent := func(*siege.Siege) { proxy.Silence() }
		outages(t, harness.StartNodeOn(t, url, flags...), silent, silent)
	})
}
