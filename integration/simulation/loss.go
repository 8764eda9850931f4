package simulation

import (
	"context"
	"errors"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// loss is that the database lost its newest commits, as after a failover to a replica that lagged.
type loss struct {
	left   int64 // the newest revision that is left
	newest int64 // the newest one that any client knew
}

// lose lets the database lose all commits of the next age, at its end.
func (w *world) lose(cl *clients, age time.Duration) {
	rows, err := w.database.fork()
	if err != nil {
		w.fail("fork of the table: %v", err)
		return
	}
	time.Sleep(age)
	l := &loss{newest: cl.recorder.Newest()}
	if err := w.database.lose(rows); err != nil {
		w.fail("loss of commits: %v", err)
		return
	}
	for _, row := range rows {
		if string(row.Key) == string(coder.ChainKey()) {
			c, err := coder.DecodeChain(row.Value)
			if err != nil {
				w.fail("chain row: %v", err)
			}
			l.left = c.Revision
		}
	}
	w.trace(databaseHost, "lost what follows revision %d; clients know revision %d", l.left, l.newest)
	w.mu.Lock()
	w.lost = l
	w.mu.Unlock()
}

// judgeLoss checks what must follow a loss: no node serves, and after a recovery all do, with
// revisions above all that were ever seen.
func (cl *clients) judgeLoss() {
	w := cl.w
	w.stats.Lost = max(0, w.lost.newest-w.lost.left)
	if w.lost.newest > w.lost.left {
		time.Sleep(recoveryTime)
		for _, name := range nodes {
			if n := w.machines[name].running(); n == nil || !errors.Is(n.Backend().Stopped(), mvcc.ErrNotServing) {
				w.fail("%s serves although the database lost revisions %d to %d", name, w.lost.left+1, w.lost.newest)
			}
		}
	}
	cl.auditor.stop()
	for _, name := range nodes {
		w.machines[name].halt()
	}
	newest := cl.recorder.Newest()
	if err := recoverTable(w.database.store); err != nil {
		w.fail("recover: %v", err)
	}
	for _, name := range nodes {
		w.machines[name].launch()
	}
	w.awaitWrites(cl, startTime)
	if got := cl.recorder.Newest(); got <= newest+bump {
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
