package member

import (
	"context"
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/server/timing"
)

// The one rule of liveness: a candidate that does not hear the holder of the lock writes a challenge into the lock row.
// The holder answers by a write that removes it. If the row is the same when the deadline is over, the candidate takes
// the lock in the same compare-and-swap. ../../../integration/simulation/model/lock.pml checks the rule.

// hearing is what this process hears of a leadership by its feed.
type hearing struct {
	grant    int64
	since    time.Time // the last sign of life, or, if there was none, the first poll that found this grant
	heard    bool      // there was one
	refused  bool      // the holder's address has refused connections since
	answered time.Time // when the holder has answered a challenge since; zero: not
	logged   bool      // that it answers, and is not heard
}

// silent reports whether the holder has to be challenged.
func (h hearing) silent() bool { return h.refused || time.Since(h.since) >= timing.Unheard }

// pending is the challenge in the lock row of one leadership, and for how long polls have found it unanswered, by this
// process's own clock.
type pending struct {
	challenge        uint64 // 0: none
	at               time.Time
	waited, deadline time.Duration
}

// observe records a lock row that was read or written since began. Time counts from the first one with the challenge,
// and between two polls for half of the deadline at most: the holder may have been without the database as well. What
// makes the deadline shorter, that the holder knows that its feed has ended, counts from then.
func (p *pending) observe(l lock, deadline time.Duration, began time.Time) {
	switch {
	case l.Challenge == 0:
		*p = pending{}
	case l.Challenge != p.challenge || deadline < p.deadline-p.waited:
		*p = pending{challenge: l.Challenge, at: time.Now(), deadline: deadline}
	default:
		p.waited += min(max(began.Sub(p.at), 0), p.deadline/2)
		p.at = began
	}
}

// missed records that a poll failed: the holder may have been without the database as well, and missed its next poll.
// The time since the last poll does not count either.
func (p *pending) missed(holderPoll time.Duration) {
	p.waited -= min(p.waited, holderPoll)
	p.at = time.Now()
}

// RecordHeartbeat marks the holder of the lock as alive; called for each message of its feed that says that it keeps
// the lock.
func (r *Registry) RecordHeartbeat(member uint64) {
	e := r.elector
	e.mu.Lock()
	if member == e.holder {
		e.hearing = hearing{grant: e.hearing.grant, since: time.Now(), heard: true}
	}
	e.mu.Unlock()
	// While the process is awake: the leader's heartbeat comes a bit earlier than the next poll is due.
	if time.Since(r.began)-time.Duration(r.polledAt.Load()) > r.cfg.poll*3/4 {
		r.PollNow()
	}
}

// Refused records that a member's address refuses connections. That proves nothing: the address may be wrong, or a
// firewall may reject. If the member holds the lock, it is challenged at once.
func (r *Registry) Refused(member uint64) {
	e := r.elector
	e.mu.Lock()
	if member == e.holder {
		if !e.hearing.refused {
			e.hearing.answered = time.Time{} // it may have ended since
		}
		e.hearing.refused = true
	}
	e.mu.Unlock()
	r.PollNow()
}

// contest challenges a holder that is not heard, and takes the lock if it does not answer. The lock row was read since
// began.
func (e *elector) contest(ctx context.Context, began time.Time) error {
	challenged, answered := e.lock.Challenge != 0, e.pending.challenge != 0 && e.lock.Challenge == 0
	e.mu.Lock()
	if answered {
		e.hearing.answered = time.Now()
	}
	h := e.hearing
	e.hearing.logged = h.logged || answered && h.silent()
	e.mu.Unlock()
	e.pending.observe(e.lock, e.deadline(h), began)
	if !challenged {
		e.refused = false
	}
	if answered && h.silent() {
		e.metrics.suspicions.WithLabelValues(leaderAlive).Inc()
		if !h.logged {
			m, _ := withID(e.view.last(), e.lock.Holder)
			e.log.Warn("the leader is not heard, but it answers in the database and keeps the lock; this member cannot "+
				"forward requests to it: "+
				"check --initial-advertise-peer-urls and --listen-peer-urls of that member, and firewalls", "leader", m.String(),
				"peer_urls", m.PeerURLs,
				"refused", h.refused, "challenged_again_after", timing.ChallengeAgain)
		}
	}
	switch {
	case !h.silent():
		return nil
	case !challenged && !h.answered.IsZero() && time.Since(h.answered) < timing.ChallengeAgain:
		return nil
	case !challenged || e.refused:
		return e.challenge(ctx, h)
	case e.pending.waited >= e.pending.deadline:
		return e.depose(ctx, h)
	}
	return nil
}

// deadline is how long the holder's answer to a challenge may take. One whose address refuses connections is most
// likely gone: it gets the time that a holder which runs needs, and less if it knows of the end of its feed, because
// then it polls often. If the database is far away from either, it takes longer.
func (e *elector) deadline(h hearing) time.Duration {
	d := e.cfg.ElectionTimeout
	switch {
	case h.refused && h.heard && time.Since(h.since) < timing.FeedForgotten:
		d = min(d, timing.MissedPolls*e.cfg.fastPoll)
	case h.refused:
		d = min(d, timing.MissedPolls*e.cfg.holderPoll())
	}
	holder, _ := withID(e.view.last(), e.lock.Holder)
	return d + e.trips.pause(holder.roundTrip())
}

// challenge writes a challenge into the lock row.
func (e *elector) challenge(ctx context.Context, h hearing) error {
	next := e.lock.challengedBy(newID())
	if err := e.swap(ctx, next); err != nil {
		return err
	}
	if e.lock.Challenge == next.Challenge { // there was no conflict
		e.refused = false
		e.pending.observe(e.lock, e.deadline(h), time.Now())
		e.PollNow() // to plan the next poll
	}
	return nil
}

// depose takes the lock from a holder that left the challenge unanswered. An attempt that fails says that the database
// may take no writes. Then the holder could not answer, and gets a new challenge.
func (e *elector) depose(ctx context.Context, h hearing) error {
	holder := e.lock
	if err := e.acquire(ctx); err != nil || !e.names(e.lock) {
		return err
	}
	e.view.markGone(holder.Holder, holder.Incarnation)
	e.metrics.suspicions.WithLabelValues(leaderGone).Inc()
	e.log.Warn("the leader's process is gone: it is not heard, and left a challenge unanswered",
		"leader", fmt.Sprintf("%x", holder.Holder), "refused", h.refused, "waited", e.pending.waited)
	return nil
}

// nextPoll returns the time until this process has to read the lock row again. A holder of the lock polls a bit earlier
// than its followers, so that they can poll when its heartbeat comes.
func (e *elector) nextPoll() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	h, heard := e.hearing, time.Since(e.hearing.since)
	switch {
	case e.term != nil && !e.term.lost && !e.needsFastPoll() && !e.lockTrouble:
		return e.cfg.holderPoll()
	case e.term != nil, e.mayHold, !e.quit.IsZero(), e.holder == 0, e.holder == e.id: // an answer that failed is repeated
		return e.cfg.fastPoll
	case e.pending.challenge != 0 && h.silent() && e.standing() && !e.standsBack():
		return min(e.cfg.fastPoll, max(e.pending.deadline-e.pending.waited, time.Millisecond))
	case h.silent() || !h.heard:
		return e.cfg.fastPoll
	}
	return max(e.cfg.fastPoll, min(e.cfg.poll, timing.Unheard-heard))
}
