package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// loss is that the database lost its newest commits, as after a failover to a replica that lagged.
type loss struct {
	left   int64 // the newest revision that is left
	newest int64 // the newest one that any client knew, or the witness if there is one

	witness   string    // the only node that knows what was lost; "": all of them
	recovered bool      // the table was recovered; before the witness looks at it, or once all was judged
	awake     time.Time // since when the witness hangs no longer
	heal      func()    // ends the trouble of the witness
}

// lose lets the database lose all commits of the next age, at its end. A node may start again before, which the
// database then forgets.
func (w *world) lose(cl *clients, age time.Duration, rnd *rand.Rand) {
	rows, err := w.database.fork()
	if err != nil {
		w.fail("fork of the table: %v", err)
		return
	}
	if rnd.IntN(2) == 0 {
		w.rejoin(nodes[rnd.IntN(len(nodes))])
	}
	time.Sleep(age)
	l := &loss{newest: cl.recorder.Newest(), heal: func() {}}
	if err := w.database.lose(rows); err != nil {
		w.fail("loss of commits: %v", err)
		return
	}
	l.left = w.token().Revision
	w.trace(databaseHost, "lost what follows revision %d; clients know revision %d", l.left, l.newest)
	w.mu.Lock()
	w.lost = l
	w.mu.Unlock()
}

// rejoin stops a node in order, and starts it again. It returns once the node knows a leader.
func (w *world) rejoin(name string) {
	m := w.machines[name]
	m.halt()
	m.launch()
	for end := time.Now().Add(recoveryTime); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if n := m.running(); n != nil && n.Replica().Leader() != 0 {
			return
		}
	}
	w.fail("%s knows no leader %s after it was started again", name, recoveryTime)
}

// course is what happens around a replacement.
type course struct {
	rejoins   bool   // the node that will know the loss alone starts again before, which the database then forgets
	successor string // takes the lead before, which the database then forgets; "": the leader does not change
	recovered bool   // the table is recovered before the node looks at it
	// until is how far the fence row gets, once there is a leader, before the node hangs no longer; nil: it does not
	// matter. known is the fence row as the node knows it.
	until func(token, known coder.FenceToken) bool

	// What follows lasts for most; with hidden, only until the fence row hides the loss. 0: until the loss is judged.
	others     trouble // of the other nodes' statements
	statements trouble // of the node's statements
	apart      int     // the node reaches no other node: 1, or 0
	most       time.Duration
	hidden     bool
}

// outgrown reports whether the fence row does not show that the database has lost what the node knows.
func outgrown(token, known coder.FenceToken) bool {
	return token.Revision > known.Revision && token.Sequence > known.Sequence
}

// anyCourse draws the course of a replacement at a node.
func anyCourse(rnd *rand.Rand) (c course) {
	c.rejoins = rnd.IntN(3) == 0
	if rnd.IntN(2) == 0 {
		c.successor = nodes[rnd.IntN(len(nodes))]
	}
	c.recovered = rnd.IntN(4) == 0
	// Often until the fence row does not show the loss, else until there is a leader.
	hides := rnd.IntN(3) > 0
	if hides {
		c.until = outgrown
	}
	// The node may have trouble with its statements, or write nothing before the fence row has outgrown the loss. It may
	// also reach no other node.
	c.statements, c.most = []trouble{{}, {before: 300}, {readOnly: true}}[rnd.IntN(3)], time.Second
	if c.statements.readOnly && !hides {
		c.most, c.hidden = 9*time.Second, true
	}
	c.apart = rnd.IntN(2)
	return c
}

// courseOf returns the course of a fault at a node. All but that of Replace are rare among those that anyCourse draws.
func (w *world) courseOf(kind Kind, node string, rnd *rand.Rand) course {
	switch kind {
	case Repeat:
		leader := w.leader()
		successor := slices.IndexFunc(nodes, func(other string) bool {
			return other != node &&
				(leader == nil || other != leader.name)
		})
		return course{successor: nodes[successor], until: outgrown, statements: trouble{before: 400}, most: 3 * time.Second}
	case Even:
		reached := func(token, known coder.FenceToken) bool {
			return token.Revision >= known.Revision && token.Sequence >= known.Sequence
		}
		return course{until: reached, others: trouble{readOnly: true}, statements: trouble{before: 400},
			most: 2 * time.Second}
	case Overtake:
		near := 10 + rnd.Int64N(90)
		reached := func(token, known coder.FenceToken) bool {
			return token.Term > known.Term && token.Revision+near >= known.Revision
		}
		return course{until: reached, others: trouble{read: 3 * time.Second}, most: time.Second}
	case Unread:
		return course{statements: trouble{token: true}, apart: 1}
	}
	return anyCourse(rnd)
}

// replace lets the database lose all commits of the next age, at its end, and gives their revisions to others: a node
// hangs then, and the other nodes start again, so that they do not know what was lost.
func (w *world) replace(cl *clients, name string, age time.Duration, c course) {
	rows, err := w.database.fork()
	if err != nil {
		w.fail("fork of the table: %v", err)
		return
	}
	if c.rejoins {
		w.rejoin(name)
	}
	if c.successor != "" {
		w.cause(cl, Fault{Kind: Move, Host: c.successor})
	}
	time.Sleep(age)
	w.network.stall(name, 1)
	status := w.machines[name].running().Replica().Status()
	known := coder.FenceToken{Term: status.Term, Revision: status.Revision, Sequence: status.Sequence}
	l := &loss{newest: known.Revision, witness: name, heal: sync.OnceFunc(func() {
		for _, node := range nodes {
			w.database.setTrouble(node, trouble{})
		}
		w.separate(name, -c.apart)
	})}
	var others []string
	for _, other := range nodes {
		if other != name {
			others = append(others, other)
			ended := w.machines[other].crash(false)
			w.crashed.Go(func() { <-ended })
		}
	}
	if err := w.database.lose(rows); err != nil {
		w.fail("loss of commits: %v", err)
	}
	l.left = w.token().Revision
	w.trace(databaseHost, "lost what follows revision %d; %s knows revision %d", l.left, name, l.newest)
	w.mu.Lock()
	w.lost = l
	w.mu.Unlock()
	for _, other := range others {
		w.network.restart(other)
		w.machines[other].launch()
	}
	w.database.flush()
	if l.recovered = c.recovered; l.recovered {
		time.Sleep(time.Second)
		for _, other := range others {
			w.machines[other].halt()
		}
		if err := recoverTable(w.database.store); err != nil {
			w.fail("recover: %v", err)
		}
		for _, other := range others {
			w.machines[other].launch()
		}
	}
	pause := 50 * time.Millisecond
	if c.others.readOnly {
		pause = time.Millisecond
	}
	await(9*time.Second, pause, func() bool {
		return (c.until == nil || c.until(w.token(), known)) && slices.ContainsFunc(others, func(other string) bool {
			n := w.machines[other].running()
			return n != nil && n.Replica().Leading()
		})
	})
	for _, other := range others {
		w.database.setTrouble(other, c.others)
	}
	w.database.setTrouble(name, c.statements)
	w.separate(name, c.apart)
	w.mu.Lock()
	l.awake = time.Now()
	w.mu.Unlock()
	w.network.stall(name, -1)
	w.database.flush()
	if c.most == 0 {
		return
	}
	if c.hidden {
		await(c.most, 50*time.Millisecond, func() bool { return outgrown(w.token(), known) })
	} else {
		time.Sleep(c.most)
	}
	l.heal()
}

// separate adds by to the partitions between a node and all others.
func (w *world) separate(name string, by int) {
	for _, other := range nodes {
		if other != name {
			w.network.partition(direction{name, other}, by)
			w.network.partition(direction{other, name}, by)
		}
	}
}

// await waits until a condition holds, for so long at most, and looks after each pause.
func await(most, pause time.Duration, holds func() bool) {
	for end := time.Now().Add(most); time.Now().Before(end) && !holds(); {
		time.Sleep(pause)
	}
}

// judgeWitness checks that a node which knows lost commits answers no read of the newest state any longer.
func (w *world) judgeWitness(node string, sent time.Time, revision int64) {
	if !w.plan.replaces() {
		return
	}
	w.mu.Lock()
	l := w.lost
	w.mu.Unlock()
	if l == nil || l.witness != node || l.recovered || l.newest <= l.left {
		return
	}
	w.mu.Lock()
	late := !l.awake.IsZero() && sent.After(l.awake)
	w.mu.Unlock()
	if late {
		w.fail("%s answers a read of the newest state at revision %d, and knows the lost revisions %d to %d", node, revision,
			l.left+1, l.newest)
	}
}

// token returns the fence row, the zero value if it cannot be read.
func (w *world) token() (c coder.FenceToken) {
	raw, err := w.database.store.Get(context.Background(), coder.FenceKey())
	if err == nil {
		if c, err = coder.DecodeFenceToken(raw); err != nil {
			w.fail("fence row: %v", err)
		}
	}
	return c
}

// judgeLoss checks what must follow a loss: no node serves, and after a recovery all do, with
// revisions above all that were ever seen.
func (cl *clients) judgeLoss() {
	w := cl.w
	w.stats.Lost = max(0, w.lost.newest-w.lost.left)
	if w.lost.newest > w.lost.left {
		time.Sleep(recoveryTime)
		for _, name := range nodes {
			n := w.machines[name].running()
			stopped := n != nil && errors.Is(n.Replica().Stopped(), mvcc.ErrNotServing)
			switch {
			case w.lost.recovered && name == w.lost.witness: // the recovery has compacted what it could compare
			case w.lost.recovered && (n == nil || stopped):
				w.fail("%s does not serve after a recovery", name)
			case !w.lost.recovered && !stopped:
				w.fail("%s serves although the database lost revisions %d to %d", name, w.lost.left+1, w.lost.newest)
			}
		}
	}
	w.lost.heal()
	cl.auditor.stop()
	for _, name := range nodes {
		w.machines[name].halt()
	}
	newest := cl.recorder.Newest()
	w.mu.Lock()
	w.lost.recovered = true
	w.mu.Unlock()
	if err := recoverTable(w.database.store); err != nil {
		w.fail("recover: %v", err)
	}
	for _, name := range nodes {
		w.machines[name].launch()
	}
	w.awaitWrites(cl, startTime)
	if err := w.judgeVersions(); err != nil {
		w.fail("the table after a recovery: %v", err)
	}
	least := newest + bump
	if w.plan.replaces() { // clients may know more than the witness did
		least = max(newest, w.lost.newest+bump)
	}
	if got := cl.recorder.Newest(); got <= least {
		w.fail("after a recovery, the revision is %d; clients knew revision %d", got, newest)
	}
}

// bump is by how much a recovery raises the revision, at least.
const bump = 1_000_000

// recoverTable does what sqlbrain recover does.
func recoverTable(store sqlstore.Store) error {
	ctx := context.Background()
	found, err := repair.Examine(ctx, store)
	if err != nil {
		return err
	}
	next, err := found.Plan(bump, true)
	if err != nil {
		return err
	}
	return found.Recover(ctx, store, next)
}
