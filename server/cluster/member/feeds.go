package member

import (
	"context"
	"time"

	"github.com/sqlbrain/sqlbrain/server/timing"
)

// FeedEnded records that a feed of this process has ended. It must be called as soon as that shows: if the process is
// gone, the follower has to find out within a fraction of a second, so it challenges it, and does not wait for long. A
// process that runs polls often after that.
func (r *Registry) FeedEnded() {
	r.feedEnded.Store(int64(time.Since(r.began)))
	r.PollNow()
}

// needsFastPoll reports whether a follower may challenge this process that does not wait long for an answer.
func (r *Registry) needsFastPoll() bool {
	at := r.feedEnded.Load()
	return at != 0 && time.Since(r.began)-time.Duration(at) < timing.FastPolls
}

// HeartbeatPeriod returns a context that ends when the next heartbeat of this process's feeds is due: right after it
// has seen that it has the lock, or after timing.FeedHeartbeat. So the process wakes up once for its poll and all
// feeds, and what they say of the lock is new.
func (r *Registry) HeartbeatPeriod() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.period.Err() != nil {
		r.period, r.endPeriod = context.WithTimeout(context.Background(), timing.FeedHeartbeat)
	}
	return r.period
}

// endHeartbeatPeriod ends the context that HeartbeatPeriod has returned, unless that was a short time ago.
func (r *Registry) endHeartbeatPeriod() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if due, _ := r.period.Deadline(); time.Until(due) < timing.FeedHeartbeat*3/4 {
		r.endPeriod()
	}
}
