package simulation

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlbrain/sqlbrain/server/steptrace"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// Result is what a simulation found.
type Result struct {
	// Trace has a line for each message between hosts, statement, call and change of role.
	Trace []string
	// Violations are what the judges found; none if everything was right.
	Violations []string
	// Steps are those of the protocol that nodes recorded, in order. Their time is the simulated one.
	Steps []steptrace.Step
	Stats Stats
}

// Stats count what happened.
type Stats struct {
	Acknowledged, Unknown int // requests that write
	Revisions             int64
	Watches, Events       int
	Leases                int
	Leaders               int           // terms
	Lost                  int64         // revisions that the database lost
	Recovery              time.Duration // from the last fault's end until every node answered
}

// Run simulates a plan and returns what happened. It runs in a bubble of synctest, so t must
// not be in one.
func Run(t *testing.T, p Plan) (result Result) {
	synctest.Test(t, func(*testing.T) {
		w := newWorld(p, memstore.New())
		w.run()
		if err := w.database.store.Close(); err != nil {
			w.fail("closing the database: %v", err)
		}
		result = Result{Trace: w.lines, Violations: w.violations, Steps: w.steps, Stats: w.stats}
	})
	return result
}

// world is one simulation.
type world struct {
	plan     Plan
	start    time.Time
	network  *network
	database *database
	machines map[string]*machine
	crashed  sync.WaitGroup // processes that were killed and have not ended yet

	mu         sync.Mutex
	lost       *loss // nil: nothing
	lines      []string
	violations []string
	steps      []steptrace.Step
	locks      map[*process]*lockUse
	condemned  []time.Duration // when a node said that the leader's process is gone
	// disturbances are the faults that are over.
	disturbances []disturbance
	lastStep     time.Duration
	stats        Stats
}

func newWorld(p Plan, store sqlstore.Store) *world {
	w := &world{plan: p, start: time.Now(), machines: make(map[string]*machine), locks: make(map[*process]*lockUse),
		lines: make([]string, 0, 1<<14)}
	w.network = newNetwork(w)
	w.database = &database{w: w, rnd: w.rand("database"), store: store, trouble: make(map[string]trouble)}
	for _, name := range nodes {
		w.machines[name] = newMachine(w, name)
	}
	return w
}

// rand returns the source of random numbers of one part of the world. A change of one part
// does not change what the others draw.
func (w *world) rand(part string) *rand.Rand { return rand.New(rand.NewPCG(w.plan.Seed, hash(part))) }

func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // never fails
	return h.Sum64()
}

func (w *world) trace(host, format string, args ...any) {
	w.note(host, fmt.Sprintf(format, args...))
}

// stepTime returns the time for a step of a node: the simulated time, and different for each call, so that it also has
// the order of what happens at the same time.
func (w *world) stepTime() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastStep = max(w.lastStep+1, time.Since(w.start))
	return w.lastStep
}

// step records a step of a node.
func (w *world) step(s steptrace.Step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.steps = append(w.steps, s)
}

// note is trace without a format.
func (w *world) note(host, text string) {
	at := time.Since(w.start)
	line := make([]byte, 0, 16+len(host)+len(text))
	line = strconv.AppendInt(line, int64(at/time.Second), 10)
	line = append(line, '.')
	line = append(line, strconv.Itoa(int(1e9 + at%time.Second))[1:]...)
	line = append(line, ' ')
	line = append(line, host...)
	line = append(line, ' ')
	line = append(line, text...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, string(line))
}

func (w *world) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.trace("judge", "%s", text)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violations = append(w.violations, text)
}

const (
	// startTime is the longest time until a cluster answers.
	startTime = 20 * time.Second
	// recoveryTime is the longest time from the end of all faults until every node answers a
	// write. A node can need a lease of the lock, a retry of a connection, and the request timeout.
	recoveryTime = 15 * time.Second
)

func (w *world) run() {
	for _, name := range nodes {
		w.machines[name].launch()
	}
	cl := newClients(w)
	w.awaitWrites(cl, startTime)
	began := time.Now()
	cl.start()
	w.inject(cl, began)
	time.Sleep(time.Until(began.Add(w.plan.Duration)))
	if w.lost == nil {
		w.awaitWrites(cl, startTime)
		cl.judgeOpenWatches()
	}
	cl.stop()
	if w.lost != nil {
		cl.judgeLoss()
	} else {
		healed := time.Now()
		w.awaitWrites(cl, recoveryTime)
		w.stats.Recovery = time.Since(healed)
		cl.judge()
		w.judgeLeaders()
		w.judgeSuccession()
		w.stats.Leaders = w.terms()
	}
	for _, name := range nodes {
		w.machines[name].halt()
	}
	w.crashed.Wait()
}

// awaitWrites returns when every node has answered a write.
func (w *world) awaitWrites(cl *clients, most time.Duration) {
	var all sync.WaitGroup
	end := time.Now().Add(most)
	for _, name := range nodes {
		all.Go(func() {
			if err := cl.probe(name, end); err != nil {
				w.fail("%s answers no write within %s: %v", name, most, err)
			}
		})
	}
	all.Wait()
}

// inject causes the faults of the plan, and returns when all are over.
func (w *world) inject(cl *clients, began time.Time) {
	var all sync.WaitGroup
	for _, f := range w.plan.Faults {
		all.Go(func() {
			time.Sleep(time.Until(began.Add(f.At)))
			w.cause(cl, f)
		})
	}
	all.Wait()
}

// terms returns how many leaders there were.
func (w *world) terms() int {
	most := int64(0)
	for _, name := range nodes {
		if n := w.machines[name].running(); n != nil {
			most = max(most, n.Replica().Status().Term)
		}
	}
	return int(most)
}

// leader returns the machine that leads, nil if none does.
func (w *world) leader() *machine {
	for _, name := range nodes {
		if n := w.machines[name].running(); n != nil && n.Replica().Leading() {
			return w.machines[name]
		}
	}
	return nil
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
