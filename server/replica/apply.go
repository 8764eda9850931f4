package replica

import (
	"errors"
	"fmt"

	"github.com/sqlbrain/sqlbrain/server/steptrace"
	"github.com/sqlbrain/sqlbrain/watch"
)

// errGap means that events are missing between the node's revision and an update.
var errGap = errors.New("revisions are missing")

// Apply makes commits of the leader visible on this node. It must not be called concurrently,
// nor while the node leads. Divergence.Check must have been called for the first update of a feed, and
// Auth.LoadVersion must have loaded the users and roles of the update before. Errors: ErrNotServing, or
// errGap, after which the caller must call CatchUp.
func (r *Replica) Apply(u Update) error {
	if err := r.Stopped(); err != nil {
		return err
	}
	r.seen.ObserveTerm(u.Term)
	known := r.Revision()
	events := u.Events
	for len(events) > 0 && events[0].Record.ModRevision <= known {
		events = events[1:]
	}
	if len(events) > 0 && events[0].Record.ModRevision != known+1 || len(events) == 0 && u.Revision > known {
		return fmt.Errorf("%w: after %d", errGap, known)
	}
	if len(events) > 0 {
		if err := r.publish(events, events[len(events)-1].Record.ModRevision); err != nil {
			return err
		}
	}
	r.raiseCompacted(u.CompactRevision)
	r.recordFed()
	return nil
}

// publish makes events in the table visible, up to rev. It updates the key space view, calls
// beforeVisible, raises the visible revision, and publishes to watchers, in that order. The caller must not
// change the events afterwards.
func (r *Replica) publish(events []*watch.Event, rev int64, beforeVisible ...func()) (err error) {
	if r.cfg.Leadership != nil {
		r.Divergence.remember(events)
	}
	r.view.Apply(events)
	for _, f := range beforeVisible {
		f()
	}
	r.Hub.Publish(events, rev, func() { err = r.makeVisible(rev) })
	if err != nil {
		return r.StopServing(err)
	}
	return nil
}

// makeVisible makes everything up to rev readable.
func (r *Replica) makeVisible(rev int64) error {
	r.cfg.Trace.Record(steptrace.Step{Kind: steptrace.Show, Revision: rev})
	defer r.cfg.Trace.Record(steptrace.Step{Kind: steptrace.Shown, Revision: rev})
	return r.tso.Advance(rev)
}

// skipTo moves to revision rev without the events before it, whose log rows were compacted. It
// discards the key space view, and forgets the revisions that could be compared. Watchers read the table, or are
// cancelled as compacted.
func (r *Replica) skipTo(rev int64) (err error) {
	r.log.Warn("history needed to catch up was compacted, discarding caches", "from", r.Revision(), "to", rev)
	r.view.Purge(rev)
	r.Divergence.forget()
	r.Hub.Jump(rev, func() { err = r.makeVisible(rev) })
	if err != nil {
		return r.StopServing(err)
	}
	return nil
}

// raiseCompacted makes known to readers and watchers that everything below rev is gone.
func (r *Replica) raiseCompacted(rev int64) {
	if r.compacted.Raise(rev) {
		r.Hub.Compact(rev)
	}
}
