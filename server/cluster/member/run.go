package member

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/timing"
)

// Run sends heartbeats, answers challenges, looks at the members, and takes part in the
// election, until ctx ends; then it ends lead's context and waits for lead to return. It
// also looks when Refresh asks for it. Trouble with the database ends nothing; it is
// logged when it begins and when it is over. Once the Registry has ended, Run
// continues to look.
//
// There are two kinds of reads. A look reads all member rows: when they were changed,
// and every 2 s, or 10 s while nothing is expected to change. A glance reads the few rows
// of which this process has to know sooner, at least each answer interval.
func (r *Registry) Run(ctx context.Context) {
	r.elector.base = ctx
	defer r.elector.shutDown()
	pauseOfHeartbeats := min(r.cfg.heartbeatInterval, timing.FirstHeartbeat)
	heartbeats := time.NewTimer(pauseOfHeartbeats)
	defer heartbeats.Stop()
	glances := time.NewTimer(r.cfg.glanceInterval())
	defer glances.Stop()
	r.lookedAt = time.Now()
	asked, pause := r.asked, time.NewTimer(0) // asked is nil during the pause
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-heartbeats.C:
			r.sendHeartbeat(ctx, nil)
			pauseOfHeartbeats = min(r.cfg.heartbeatInterval, 2*pauseOfHeartbeats)
			heartbeats.Reset(pauseOfHeartbeats)
		case <-glances.C:
			r.glance(ctx)
			r.lookIfDue(ctx)
			glances.Reset(r.rest())
		case <-r.hurry:
			r.glance(ctx)
			r.lookIfDue(ctx)
			glances.Reset(r.rest())
		case <-asked:
			r.refresh(ctx)
			asked = nil
			pause.Reset(timing.RefreshPause)
		case <-pause.C:
			asked = r.asked
		}
	}
}

// lookIfDue looks at all members if that is due before the next glance. Right after a glance it wakes
// nothing that sleeps.
func (r *Registry) lookIfDue(ctx context.Context) {
	interval := timing.MemberLook
	if r.calm() {
		interval = timing.CalmMemberLook
	}
	if time.Since(r.lookedAt) > interval-r.cfg.glanceInterval() {
		_ = r.lookOnce(ctx)
		r.lookedAt = time.Now()
	}
}

// glance reads this member's row, the row that counts changes, the lock row, and that of
// its holder. It answers a challenge with a heartbeat, looks at all members if they were
// changed, so that a removal takes effect on all members at once, and acts on the lock.
func (r *Registry) glance(ctx context.Context) {
	r.glancedAt.Store(int64(time.Since(r.began)))
	own, err := r.readGlance(ctx)
	r.elector.glanced(err)
	if ctx.Err() != nil {
		return
	}
	r.logTrouble(&r.lockTrouble, err, "the lock row cannot be read or written, trying again",
		"the lock row can be read and written again")
	if err != nil || r.Err() != nil || r.left.Load() {
		return
	}
	switch {
	case own == nil || own.Incarnation != r.incarnation:
		r.sendHeartbeat(ctx, nil) // which finds out why
	case own.Challenge != 0:
		r.challenged = time.Now()
		r.sendHeartbeat(ctx, own)
	case r.elector.holds() && time.Since(r.beaten) >= r.pace()-r.cfg.glanceInterval()/4:
		r.sendHeartbeat(ctx, own)
	}
	if own != nil {
		r.promised = own.answers()
	}
	if r.elector.holds() && !r.beatTrouble {
		r.kept.Store(int64(time.Since(r.began)))
		r.endBeat()
	}
}

// promise is how long an answer to a challenge may take, as this process's next heartbeat says. It may take
// less: see Fed.
func (r *Registry) promise() time.Duration {
	if r.cfg.HearsLeader {
		return max(r.cfg.answerInterval, r.cfg.calmInterval())
	}
	return r.cfg.answerInterval
}

// rest returns the time until the next glance, which is longer once this process's row says so.
func (r *Registry) rest() time.Duration {
	interval := r.cfg.glanceInterval()
	calm := r.cfg.calmInterval()
	early := calm - calm/timing.Lead
	switch ago := r.view.heardAgo(r.elector.follows()); {
	case r.promised < calm || !r.calm():
	case r.elector.holds() && r.view.alone(r.id):
		interval = calm
	case r.elector.holds():
		interval = early
	case ago < early: // the leader is in time, and its next heartbeat comes first, or comes closer with each glance
		interval = calm
	default: // a leader that is heard no more is looked at often once it counts as not heard
		interval = max(interval, min(calm, r.cfg.hearsFor()-ago))
	}
	r.view.setStep(r.cfg.longestStep(interval))
	return interval
}

// hearsFor is for how long a member that was heard counts as heard.
func (c Config) hearsFor() time.Duration { return 3 * max(c.calmInterval(), timing.FeedHeartbeat) / 2 }

// calm reports whether nothing is expected to change: this process leads and no feed of it ended a short time ago, or
// it hears the leader. Trouble with the database changes nothing: it is not to be asked more often.
func (r *Registry) calm() bool {
	switch {
	case time.Since(r.challenged) < timing.Unheard:
		return false
	case r.elector.holds():
		return !r.lostFollower()
	}
	leader := r.elector.follows()
	return leader != 0 && r.view.heardAgo(leader) < r.cfg.hearsFor()
}

// pace is the time between heartbeats of this process while it holds the lock. A heartbeat is a
// commit, so they are rare while all others hear this process without them. Those that do not
// hear it challenge it.
func (r *Registry) pace() time.Duration {
	switch {
	case time.Since(r.challenged) < timing.Unheard || !r.view.allHear(r.id):
		return r.cfg.RetryPeriod
	case r.view.alone(r.id):
		return max(r.cfg.heartbeatInterval, r.cfg.RetryPeriod)
	}
	return max(timing.QuietHeartbeat, r.cfg.RetryPeriod)
}

// KeepsLock reports whether this process holds the lock, has seen so in the table just now, and
// could write to it when it last did: what others may take for a sign of life, see Heard.
func (r *Registry) KeepsLock() bool {
	return r.elector.holds() && time.Since(r.began)-time.Duration(r.kept.Load()) < 3*r.cfg.calmInterval()/2
}

// Heard takes in that the process of a member, which holds the lock, has said that it keeps it.
func (r *Registry) Heard(member uint64) {
	r.view.hear(member, time.Now())
	now := time.Since(r.began)
	if f := r.fed.Load(); f != nil {
		f.last.Store(int64(now))
	}
	// While the process is awake: the leader's heartbeat comes a bit earlier than the next glance is due.
	if now-time.Duration(r.glancedAt.Load()) > r.cfg.calmInterval()*3/4 {
		r.Retry()
	}
}

// Unheard takes in that this process no longer hears that of a member, and makes Run look at the
// lock row at once.
func (r *Registry) Unheard(member uint64) {
	r.view.hear(member, time.Time{})
	r.Retry()
}

// readGlance returns this member's row, nil if there is none.
func (r *Registry) readGlance(ctx context.Context) (own *entry, err error) {
	limit := r.trips.atLeast(min(timing.GlanceTimeout, r.cfg.leaderTimeout()), r.cfg.farTimeout())
	if r.elector.holds() && r.view.alone(r.id) {
		limit = timing.HeartbeatTimeout // an attempt that is cut off costs a busy database a new connection
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	keys := [][]byte{coder.EncodeMemberKey(r.cfg.Name), coder.EncodeMemberKey(changes), coder.LockKey()}
	holder, known := withID(r.view.last(), r.elector.lock.holder)
	if known {
		keys = append(keys, coder.EncodeMemberKey(holder.Name))
	}
	glanced := len(keys)
	var found func([][]byte)
	if piggyback := r.piggyback.Load(); piggyback != nil {
		var more [][]byte
		more, found = (*piggyback)()
		keys = append(keys, more...)
	}
	read, now := r.view.begin(), time.Now()
	rows, err := r.store.MultiGet(bounded, keys)
	if err != nil {
		return nil, err
	}
	r.trips.observe(time.Since(now))
	if found != nil {
		found(rows[glanced:])
	}
	l, err := decodeLock(rows[2])
	if err != nil {
		return nil, err
	}
	if own, err = entryOf(keys[0], rows[0]); err != nil {
		return nil, err
	}
	if !bytes.Equal(rows[1], r.counted) {
		if _, err := r.look(bounded); err != nil {
			return own, err
		}
		r.counted = rows[1]
	}
	var of *entry
	switch current, ok := withID(r.view.last(), l.holder); {
	case !ok: // released, or not a member
	case own != nil && l.holder == own.ID:
		of = own
	case known && l.holder == holder.ID:
		of, err = entryOf(keys[3], rows[3])
	default: // the holder has changed since the last glance
		of, err = r.readEntry(bounded, current.Name)
	}
	if err != nil {
		return own, err
	}
	clock, seen := r.view.glanced(of, read, now)
	return own, r.elector.step(ctx, l, of, clock, seen)
}

// readEntry returns the row of a member, nil if it is missing.
func (r *Registry) readEntry(ctx context.Context, name string) (*entry, error) {
	keys := [][]byte{coder.EncodeMemberKey(name)}
	rows, err := r.store.MultiGet(ctx, keys)
	if err != nil {
		return nil, err
	}
	return entryOf(keys[0], rows[0])
}

// sendHeartbeat sends a heartbeat, and logs when that begins to fail and when it works
// again. own is this member's row if it was just read.
func (r *Registry) sendHeartbeat(ctx context.Context, own *entry) {
	err := r.beat(ctx, own)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		r.metrics.failures.Inc()
	}
	r.logTrouble(&r.beatTrouble, err, "cannot send heartbeats, trying again", "sending heartbeats again")
}

// logTrouble logs the first error of a series, and the end of the series.
func (r *Registry) logTrouble(out *bool, err error, begins, ends string) {
	if err != nil && !*out {
		r.log.Warn(begins, "error", err)
	}
	if err == nil && *out {
		r.log.Info(ends)
	}
	*out = err != nil
}

// timeout bounds one look or heartbeat.
func (r *Registry) timeout() time.Duration {
	if r.elector.holds() {
		return r.trips.atLeast(r.cfg.leaderTimeout(), r.cfg.farTimeout())
	}
	return max(timing.HeartbeatTimeout, r.cfg.heartbeatInterval)
}

// beat sends one heartbeat, unless this process is no longer a member. A heartbeat of
// unknown outcome need not be resolved: the next one looks first.
func (r *Registry) beat(ctx context.Context, own *entry) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout())
	defer cancel()
	began := time.Now()
	err := r.write(ctx, own, func(own *row) bool {
		own.Heartbeat++
		own.Answers = r.promise().Milliseconds()
		r.describe(own)
		return !r.left.Load()
	})
	if err == nil {
		r.beaten = began
	}
	if errors.Is(err, ErrRemoved) || errors.Is(err, ErrReplaced) {
		return nil // reported by Ended
	}
	return err
}

// Advertise changes the URLs that clients are directed to.
func (r *Registry) Advertise(ctx context.Context, clientURLs []string) error {
	clientURLs = slices.Clone(clientURLs)
	return r.write(ctx, nil, func(own *row) bool {
		changed := !slices.Equal(own.ClientURLs, clientURLs)
		own.ClientURLs = clientURLs
		own.Heartbeat++
		return changed
	})
}

// Leave says that this process stops, so that the others see it at once. The
// member stays one, unless it is temporary. It is called after Run has returned, and unregisters the metrics. It
// returns nil if the process is no longer the member.
func (r *Registry) Leave(ctx context.Context) error {
	r.left.Store(true)
	defer r.metrics.withdraw()
	var err error
	if r.cfg.Temporary {
		err = r.removeSelf(ctx)
	} else {
		err = r.write(ctx, nil, func(own *row) bool {
			stopped := own.Stopped
			own.Stopped = true
			own.Heartbeat++
			return !stopped
		})
	}
	if errors.Is(err, ErrRemoved) || errors.Is(err, ErrReplaced) {
		return nil
	}
	return err
}

// write changes this member's own row until it has taken effect, or change reports
// that nothing has to be changed. It looks at the table first, unless the row was just
// read, and fails with what ended the Registry if it has.
func (r *Registry) write(ctx context.Context, own *entry, change func(own *row) bool) error {
	for attempt := 1; ; attempt++ {
		if own == nil {
			t, err := r.look(ctx)
			if err == nil {
				err = r.Err()
			}
			if err != nil {
				return err
			}
			e, _ := t.named(r.cfg.Name)
			own = &e
		}
		next := entry{name: own.name, row: own.row}
		if !change(&next.row) {
			return nil
		}
		next.Challenge = 0
		batch := r.store.BeginBatchWrite()
		batch.CAS(next.key(), next.encode(), own.raw)
		err := batch.Commit(ctx)
		if err == nil {
			return nil
		}
		if err := again(ctx, err, attempt); err != nil {
			return err
		}
		own = nil
	}
}
