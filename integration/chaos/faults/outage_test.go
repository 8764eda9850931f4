package faults

import (
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

// outage runs a load over an outage and verifies everything. The server must continue
// by itself when the database is back.
func outage(t *testing.T, node *harness.Node, rounds int, away func(s *siege.Siege)) {
	t.Helper()
	s := siege.OfNode(t, node)
	for range rounds {
		s.Under(func() { away(s) })
	}
	if !harness.TargetIsEtcd() {
		require.True(t, node.Process().Running(), "the server ended")
	}
}

// TestDatabaseRestarts shuts the database down in order and starts it again.
func TestDatabaseRestarts(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, node *harness.Node, db database) {
		outage(t, node, 2, func(*siege.Siege) {
			db.Stop()
			db.Start()
		})
	})
}

// TestDatabaseKilled kills the database (SIGKILL) and starts it again.
func TestDatabaseKilled(t *testing.T) {
	rounds := harness.UsualOrLong(2, 20)
	forEachDatabase(t, func(t *testing.T, node *harness.Node, db database) {
		outage(t, node, rounds, func(*siege.Siege) {
			db.Kill()
			db.Start()
		})
	})
}

// TestDatabasePaused freezes the database: connections are open, and silent.
func TestDatabasePaused(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, node *harness.Node, db database) {
		outage(t, node, 1, func(*siege.Siege) {
			db.Pause()
			<-time.After(outageTime())
			db.Resume()
		})
	})
}

// TestDatabaseNetwork makes the network between sqlbrain and the database fail.
func TestDatabaseNetwork(t *testing.T) {
	harness.NeedsDatabase(t)
	harness.ForEachServer(t, databaseNetwork)
}

func databaseNetwork(t *testing.T, p enginetest.Product) {
	start := func(t *testing.T) (*harness.Node, *harness.Proxy) {
		proxy, url := harness.StartProxy(t, p.Database(t))
		return harness.StartNodeOn(t, url), proxy
	}
	for name, fail := range map[string]func(*harness.Proxy){
		"refuses": (*harness.Proxy).Refuse, "swallows": (*harness.Proxy).Swallow,
	} {
		t.Run(name, func(t *testing.T) {
			node, proxy := start(t)
			outage(t, node, 1, func(*siege.Siege) {
				fail(proxy)
				<-time.After(outageTime())
				proxy.Heal()
			})
		})
	}
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
		node := harness.StartNodeOn(t, url, flags...)
		outage(t, node, 2, func(*siege.Siege) { proxy.Silence() })
	})
	// The commits under way are carried out or not, and sqlbrain has to find out.
	t.Run("cuts connections", func(t *testing.T) {
		node, proxy := start(t)
		outage(t, node, 1, func(s *siege.Siege) {
			for range harness.UsualOrLong(20, 500) {
				s.Progress(1 + s.Rnd.IntN(30))
				<-time.After(time.Duration(s.Rnd.IntN(3000)) * time.Microsecond)
				proxy.Cut()
			}
		})
	})
}
