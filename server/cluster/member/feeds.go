package member

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sqlbrain/sqlbrain/server/timing"
)

// A follower whose feed ends has to find out within a fraction of a second whether the leader's process has ended too.
// It challenges the leader. A leader that runs notices the end of the feed as well, and looks for challenges often from
// then on. A member that had no feed from the leader's process, or not for a while, waits longer for an answer.

// fed is a process that sent a feed to this one.
type fed struct {
	incarnation uint64
	answers     time.Duration // after the end of the feed it answers a challenge within this time
	last        atomic.Int64  // when it was heard last, since Registry.began
}

// Hurries returns this process's incarnation, and within which time it answers a challenge after a feed of it has
// ended, while it leads. It says so at the start of a feed.
func (r *Registry) Hurries() (incarnation uint64, answers time.Duration) {
	return r.incarnation, r.cfg.answerInterval
}

// FeedEnded takes in that a feed of this process has ended. It must be called as soon as that shows: the follower may
// challenge this process at once.
func (r *Registry) FeedEnded() {
	r.unfed.Store(int64(time.Since(r.began)))
	r.Retry()
}

// lostFollower reports whether a follower may challenge this process that does not wait long for an answer.
func (r *Registry) lostFollower() bool {
	at := r.unfed.Load()
	return at != 0 && time.Since(r.began)-time.Duration(at) < timing.FollowerLost
}

// Fed takes in that a process has begun to send a feed to this one, and what Hurries returns there.
func (r *Registry) Fed(incarnation uint64, answers time.Duration) {
	f := &fed{incarnation: incarnation, answers: answers}
	f.last.Store(int64(time.Since(r.began)))
	r.fed.Store(f)
}

// answersOf is how long the process that wrote e takes to answer a challenge of this one.
func (r *Registry) answersOf(e entry) time.Duration {
	f := r.fed.Load()
	if f == nil || f.incarnation != e.Incarnation ||
		time.Since(r.began)-time.Duration(f.last.Load()) >= timing.FollowerHurries {
		return e.answers()
	}
	return min(f.answers, e.answers())
}

// feedBeat is the time between two heartbeats of feeds.
type feedBeat struct {
	ctx   context.Context
	end   context.CancelFunc
	began time.Time
}

// Beat returns a context that ends when the next heartbeat of this process's feeds is due: right after it has seen that
// it has the lock, or after timing.FeedHeartbeat. So the process wakes up once for its glance and all feeds, and what
// they say of the lock is new.
func (r *Registry) Beat() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.beats == nil || r.beats.ctx.Err() != nil {
		ctx, end := context.WithTimeout(context.Background(), timing.FeedHeartbeat)
		r.beats = &feedBeat{ctx, end, time.Now()}
	}
	return r.beats.ctx
}

// endBeat ends the context that Beat has returned, unless that was a short time ago.
func (r *Registry) endBeat() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.beats != nil && time.Since(r.beats.began) > timing.FeedHeartbeat/4 {
		r.beats.end()
	}
}
