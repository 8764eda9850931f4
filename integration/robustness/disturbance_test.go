package robustness

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// world is a server and what is under it.
type world struct {
	t         *testing.T
	datastore string // of an empty database
	through   string // the URL that the server has of it
	node      *harness.Node
	proxy     *harness.Proxy     // between the two, if the disturbance needs it
	database  *enginetest.Server // if the disturbance needs it
}

// startWorld makes the database, and what the disturbance needs.
func startWorld(t *testing.T, e harness.Engine, d disturbance) *world {
	t.Helper()
	w := &world{t: t}
	if d.needsDatabase {
		w.database = e.StartServer(t)
		w.datastore = w.database.URL()
	} else {
		w.datastore = e.Datastore(t)
	}
	w.through = w.datastore
	if d.needsProxy {
		w.proxy, w.through = harness.StartProxy(t, w.datastore)
	}
	return w
}

// disturbance is what happens in the middle of the traffic.
type disturbance struct {
	name          string
	do            func(*world)
	needsProxy    bool
	needsDatabase bool // a private one, to kill
}

// disturbances are those that need nothing but a server.
var disturbances = []disturbance{
	{name: "Killed", do: func(w *world) { w.node.Kill(); w.node.Start() }},
	{name: "KilledThrice", do: func(w *world) {
		for range 3 {
			w.node.Kill()
			w.node.Start()
		}
	}},
	{name: "Stopped", do: func(w *world) { w.node.Stop(); w.node.Start() }},
	{name: "Paused", do: func(w *world) {
		w.node.Process().Pause(w.t)
		pass(time.Second) // longer than the clients wait
		w.node.Process().Resume(w.t)
	}},
	{name: "Undisturbed", do: func(*world) {}},
}

// databaseDisturbances leave commits with an unknown outcome, which the server
// has to settle.
var databaseDisturbances = []disturbance{
	{name: "ConnectionsCut", needsProxy: true, do: func(w *world) {
		for range 30 {
			pass(rand.N(30 * time.Millisecond))
			w.proxy.Cut()
		}
	}},
	{name: "DatabaseRefuses", needsProxy: true, do: func(w *world) {
		w.proxy.Refuse()
		pass(time.Second)
		w.proxy.Heal()
	}},
	{name: "DatabaseKilled", needsDatabase: true, do: func(w *world) { w.database.Kill(); w.database.Start() }},
	{name: "BothKilled", needsDatabase: true, do: func(w *world) {
		w.database.Kill()
		w.node.Kill()
		w.database.Start()
		w.node.Start()
	}},
}

// pass lets traffic run for about d, because no event exists to wait for.
func pass(d time.Duration) { <-time.After(d*4/5 + rand.N(d*2/5+1)) }
