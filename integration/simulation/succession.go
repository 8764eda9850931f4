package simulation

import (
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/server/steptrace"
	"github.com/sqlbrain/sqlbrain/server/timing"
)

// disturbance is a fault that is over.
type disturbance struct {
	fault    Fault
	host     string
	from, to time.Duration
}

// leaderPatience is how long after the end of a fault its leader may lose its lead because of it: statements under way
// end, a challenge stays unanswered, and a new leader takes over from one that failed to.
const leaderPatience = statementTimeout + timing.Unheard + timing.Answer + timing.LongestPause + timing.TakeoverSilence

// concernsLeaders reports whether a fault can be a reason to replace a leader: one of a link between nodes is none,
// because they find out in the table whether the leader lives.
func (f Fault) concernsLeaders() bool {
	switch f.Kind {
	case Partition, PartitionTo:
		return f.Peer == databaseHost
	case Slow, Reset, Hang, Flaky, Refuse:
		return false
	}
	return true
}

// judgeLeaders checks that no leader is replaced without a reason: a fault of its host, of the database, of the host of
// its successor, or an order to move.
func (w *world) judgeLeaders() {
	w.mu.Lock()
	steps, disturbances, condemned := w.steps, w.disturbances, w.condemned
	w.mu.Unlock()
	for _, at := range condemned {
		if !slices.ContainsFunc(disturbances, func(d disturbance) bool {
			return d.fault.concernsLeaders() && d.from <= at && at <= d.to+leaderPatience
		}) {
			w.fail("a node says at %v that the leader is gone, and nothing was wrong with any node", at)
		}
	}
	leader := ""
	for _, s := range steps {
		if s.Kind != steptrace.Lead {
			continue
		}
		before := leader
		leader = s.Node
		if before == "" {
			continue
		}
		found := false
		for _, d := range disturbances {
			found = found || d.fault.concernsLeaders() && d.from <= s.At && s.At <= d.to+leaderPatience &&
				(d.fault.Kind == Move || d.host == databaseHost || d.host == before || d.host == s.Node)
		}
		if !found {
			w.fail("%s leads at %v instead of %s, with which nothing was wrong", s.Node, s.At, before)
		}
	}
}

const (
	// lastingTime is how long the faults last that make another node lead.
	lastingTime = 8 * time.Second
	// successionTime is the longest time until another node leads in place of one that cannot. Where nothing else was
	// wrong, none took longer than 2.8 s.
	successionTime = 4 * time.Second
	// quietTime is how much longer it takes to find that a leader can read and not write: clients write now and then.
	quietTime = 10 * time.Second
)

// judgeSuccession checks that another node leads soon in place of one that cannot, if nothing else was wrong.
func (w *world) judgeSuccession() {
	w.mu.Lock()
	steps, disturbances := w.steps, w.disturbances
	w.mu.Unlock()
	for i, d := range disturbances {
		bound := successionTime
		if d.fault.Kind == ReadOnly {
			bound += quietTime
		}
		switch d.fault.Kind {
		case Crash, PowerOff, Pause, Suspend, ReadOnly:
		case Partition, PartitionTo:
			if d.fault.Peer != databaseHost {
				continue
			}
		default:
			continue
		}
		alone := !slices.ContainsFunc(disturbances, func(other disturbance) bool {
			return other != disturbances[i] && other.from <= d.from+bound && d.from <= other.to+leaderPatience
		})
		leader, next := "", time.Duration(0)
		for _, s := range steps {
			switch {
			case s.Kind != steptrace.Lead:
			case s.At <= d.from:
				leader = s.Node
			case next == 0 && s.Node != d.host:
				next = s.At
			}
		}
		if alone && leader == d.host && d.to > d.from+bound && (next == 0 || next > d.from+bound) {
			w.fail("%s cannot lead from %v on (%v); the next leader leads at %v", leader, d.from, d.fault, next)
		}
	}
}

// disturbed notes that a fault on a host began at a time and has ended.
func (w *world) disturbed(f Fault, host string, from time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disturbances = append(w.disturbances, disturbance{f, host, from, time.Since(w.start)})
}
