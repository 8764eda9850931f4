package member

import (
	"context"
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/server/timing"
)

// The one rule of liveness: a candidate that does not hear the holder of the lock writes a challenge into the lock row.
// The holder answers by a write that removes it. If the row is the same when the deadline is over, the candidate takes
// the lock in the same compare-and-swap. ../../../integration/model/lock.pml checks the rule.

// hearing is what this process hears of a leadership by its feed.
type hearing struct {
	grant    int64
	since    time.Time // the last sign of life, or, if there was none, the first poll that found this grant
	heard    bool      // there was one
	lost     bool      // the feed has ended since
	refused  bool      // the holder's address has refused connections since
	answered time.Time // when the holder has answered a challenge since; zero: not
}

// silent reports whether the holder has to be challenged.
func (h hearing) silent() bool { return h.refused || time.Since(h.since) >= timing.Unheard }

// pending is the challenge in the lock row, and for how long polls have found it unanswered, by this process's own
// clock.
type pending struct {
	grant            int64
	challenge        uint64 // 0: none
	at               time.Time
	waited, deadline time.Duration
}

// observe takes in a lock row that was read or written since began. Time counts from the first one with the challenge,
// and between two polls for half of the deadline at most: the holder may have been without the database as well. What
// makes the deadline shorter, that the holder knows that its feed has ended, counts from then.
func (p *pending) observe(l lock, deadline time.Duration, began time.Time) {
	switch {
	case l.challenge == 0:
		*p = pending{}
	case l.challenge != p.challenge || deadline < p.deadline-p.waited:
		*p = pending{grant: l.grant, challenge: l.challenge, at: time.Now(), deadline: deadline}
	default:
		p.waited += min(max(began.Sub(p.at), 0), p.deadline/2)
		p.at = began
	}
}

// missed takes in that a poll failed: the holder may have been without the database as well, and missed its next poll.
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

// FeedLost takes in that the feed of a member has ended, and makes Run poll at once.
func (r *Registry) FeedLost(member uint64) {
	r.elector.hears(member, func(h *hearing) { h.lost = true })
	r.PollNow()
}

// Refused takes in that a member's address refuses connections. That proves nothing: the address may be wrong, or a
// firewall may reject. If the member holds the lock, it is challenged at once.
func (r *Registry) Refused(member uint64) {
	r.elector.hears(member, func(h *hearing) {
		if !h.refused {
			h.answered = time.Time{} // it may have ended since
		}
		h.refused = true
	})
	r.PollNow()
}

// hears changes what is known of the holder of the lock, if that is the member.
func (e *elector) hears(member uint64, change func(*hearing)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if member == e.holder {
		change(&e.hearing)
	}
}

// contest challenges a holder that is not heard, and takes the lock if it does not answer. The lock row was read since
// began.
func (e *elector) contest(ctx context.Context, began time.Time) error {
	before := e.pending
	e.mu.Lock()
	if before.challenge != 0 && before.grant == e.lock.grant && e.lock.challenge == 0 {
		e.hearing.answered = time.Now()
	}
	h := e.hearing
	e.mu.Unlock()
	e.pending.observe(e.lock, e.deadline(h), began)
	if e.lock.challenge == 0 {
		e.refused = false
		e.logAnswer(h, before)
	}
	switch {
	case !h.silent():
		return nil
	case e.lock.challenge == 0 && !h.answered.IsZero() && time.Since(h.answered) < timing.ChallengeAgain:
		return nil
	case e.lock.challenge == 0 || e.refused:
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
	d := e.cfg.AnswerTimeout
	switch {
	case h.refused && h.heard && time.Since(h.since) < timing.FeedForgotten:
		d = min(d, timing.MissedPolls*e.cfg.fastPoll)
	case h.refused:
		d = min(d, timing.MissedPolls*e.cfg.holderPoll())
	}
	holder, _ := withID(e.view.last(), e.lock.holder)
	return d + e.trips.pause(holder.RoundTrip)
}

// challenge writes a challenge into the lock row.
func (e *elector) challenge(ctx context.Context, h hearing) error {
	next := e.lock.challengedBy(newID())
	if err := e.swap(ctx, next); err != nil {
		return err
	}
	if e.lock.challenge == next.challenge { // there was no conflict
		e.refused = false
		e.pending.observe(e.lock, e.deadline(h), time.Now())
		e.wake() // to plan the next poll
	}
	return nil
}

// depose takes the lock from a holder that left the challenge unanswered. An attempt that fails says that the database
// may take no writes. Then the holder could not answer, and gets a new challenge.
func (e *elector) depose(ctx context.Context, h hearing) error {
	holder := e.lock
	if err := e.take(ctx); err != nil || !e.names(e.lock) {
		return err
	}
	e.view.condemn(holder.holder, holder.incarnation)
	e.metrics.suspicions.WithLabelValues(verdictGone).Inc()
	e.log.Warn("the leader's process is gone: it is not heard, and left a challenge unanswered",
		"leader", fmt.Sprintf("%x", holder.holder), "refused", h.refused, "waited", e.pending.waited)
	return nil
}

// logAnswer counts an answer, and logs the first one of a holder that is not heard.
func (e *elector) logAnswer(h hearing, before pending) {
	silent := h.silent()
	if before.challenge != 0 && !h.answered.IsZero() {
		if silent {
			e.metrics.suspicions.WithLabelValues(verdictAlive).Inc()
		}
		if silent && !e.silent {
			m, _ := withID(e.view.last(), e.lock.holder)
			e.log.Warn("the leader is not heard, but it answers in the database and keeps the lock; this member cannot forward requests to it: "+
				"check --initial-advertise-peer-urls and --listen-peer-urls of that member, and firewalls", "leader", m, "peer_urls", m.PeerURLs,
				"refused", h.refused, "challenged_again_after", timing.ChallengeAgain)
		}
		e.silent = silent
	}
	if !silent {
		e.silent = false
	}
}

// nextPoll returns the time until this process has to read the lock row again.
func (e *elector) nextPoll() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	heard := time.Since(e.hearing.since)
	switch h := e.hearing; {
	case e.term != nil, e.unsure, !e.quit.IsZero(), e.holder == 0, e.holder == e.id:
		return e.cfg.fastPoll
	case e.pending.challenge != 0 && h.silent() && e.standing() && !e.backoff.active():
		return min(e.cfg.fastPoll, max(e.pending.deadline-e.pending.waited, time.Millisecond))
	case h.silent() || h.lost || !h.heard:
		return e.cfg.fastPoll
	}
	return max(e.cfg.fastPoll, min(e.cfg.poll, timing.Unheard-heard))
}
