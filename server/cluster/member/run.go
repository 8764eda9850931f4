package member

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Run polls, sends heartbeats, answers challenges, lists the members, and takes part in the
// election, until ctx ends; then it ends lead's context and waits for lead to return. Trouble
// with the database ends nothing; it is logged when it begins and when it is over. Once the
// Registry has ended, Run continues to read.
//
// There are two kinds of reads. A list reads all member rows: when they were changed,
// and every timing.MemberList. A poll reads the few rows of which this process has to know sooner.
func (r *Registry) Run(ctx context.Context) {
	r.elector.base = ctx
	defer r.elector.shutDown()
	ctx = sqlstore.Urgent(ctx) // what clients read must not delay an answer
	r.listedAt = time.Now()
	r.heartbeatPause = timing.FirstHeartbeat
	r.heartbeatDue = time.Now().Add(r.heartbeatPause)
	polls := time.NewTimer(r.cfg.fastPoll)
	defer polls.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-polls.C:
		case <-r.pollNow:
		}
		r.poll(ctx)
		polls.Reset(r.elector.nextPoll())
	}
}

// poll reads this member's row, the row that counts changes, and the lock row. It sends a heartbeat if one is due, or
// has to answer a challenge in the member row, lists the members if they were changed, so that a removal takes effect
// on all members at once, and acts on the lock.
func (r *Registry) poll(ctx context.Context) {
	r.polledAt.Store(int64(time.Since(r.began)))
	own, err := r.readPoll(ctx)
	r.elector.polled(err)
	if ctx.Err() != nil {
		return
	}
	r.logTrouble(&r.lockTrouble, slog.LevelWarn, err, "the lock row cannot be read or written, trying again",
		"the lock row can be read and written again")
	if r.Err() == nil && !r.left.Load() {
		refused := r.commitFailed.Swap(false)
		if !time.Now().Before(r.heartbeatDue) || refused || err == nil && (own == nil || own.Incarnation != r.incarnation ||
			own.Challenge != 0 || r.heartbeatTrouble && r.elector.holds()) {
			r.sendHeartbeat(ctx, own)
		}
		if err == nil && r.elector.holds() && !r.heartbeatTrouble {
			r.kept.Store(int64(time.Since(r.began)))
			r.endHeartbeatPeriod()
		}
	}
	if time.Since(r.listedAt) > timing.MemberList-r.cfg.poll { // right after a poll it wakes nothing that sleeps
		bounded, cancel := context.WithTimeout(ctx, r.trips.bound(timing.PollTimeout))
		defer cancel()
		_, _ = r.list(bounded) // a failure is not logged: polls fail too
		r.listedAt = time.Now()
	}
}

// KeepsLock reports whether this process holds the lock, has seen so in the table just now, and
// could write to it when it last did: what others may take for a sign of life, see RecordHeartbeat.
func (r *Registry) KeepsLock() bool {
	return r.elector.holds() && time.Since(r.began)-time.Duration(r.kept.Load()) < 3*r.cfg.poll/2
}

// CommitFailed records that the database has refused a commit of this process, or has not answered it. The next poll
// writes a heartbeat, to find out whether this process can write: one that cannot does not keep the lock.
func (r *Registry) CommitFailed() { r.commitFailed.Store(true) }

// readPoll returns this member's row, nil if there is none.
func (r *Registry) readPoll(ctx context.Context) (own *entry, err error) {
	bounded, cancel := context.WithTimeout(ctx, r.trips.bound(timing.PollTimeout))
	defer cancel()
	keys := [][]byte{coder.EncodeMemberKey(r.cfg.Name), coder.EncodeMemberKey(changes), coder.LockKey()}
	polled := len(keys)
	var found func([][]byte)
	if piggyback := r.piggyback.Load(); piggyback != nil {
		var more [][]byte
		more, found = (*piggyback)()
		keys = append(keys, more...)
	}
	began := time.Now()
	rows, err := r.store.MultiGet(bounded, keys)
	if err == nil || bounded.Err() != nil && ctx.Err() == nil { // else a database that became far away is never reached
		r.trips.observe(time.Since(began))
	}
	if err != nil {
		return nil, err
	}
	if found != nil {
		found(rows[polled:])
	}
	l, err := decodeLock(rows[2])
	if err != nil {
		return nil, err
	}
	if rows[0] != nil {
		e, err := decodeEntry(keys[0], rows[0])
		if err != nil {
			return nil, err
		}
		if own = &e; own.Incarnation == r.incarnation {
			r.cfg.Certificate.Published(own.Fingerprint)
		}
	}
	if !bytes.Equal(rows[1], r.counted) {
		if _, err := r.list(bounded); err != nil {
			return own, err
		}
		r.counted = rows[1]
	}
	return own, r.elector.step(ctx, l, began)
}

// sendHeartbeat sends a heartbeat, and logs when that begins to fail and when it works
// again. own is this member's row, which was just read; nil if there is none.
func (r *Registry) sendHeartbeat(ctx context.Context, own *entry) {
	err := r.heartbeat(ctx, own)
	if ctx.Err() != nil {
		return
	}
	r.heartbeatPause = min(timing.MemberHeartbeat, 2*r.heartbeatPause)
	if err != nil {
		r.metrics.failures.Inc()
		r.heartbeatPause = timing.FirstHeartbeat
	}
	r.heartbeatDue = time.Now().Add(r.heartbeatPause)
	r.logTrouble(&r.heartbeatTrouble, slog.LevelWarn, err,
		"cannot send heartbeats, trying again", "sending heartbeats again")
}

// logTrouble logs the first error of a series, and the end of the series.
func (r *Registry) logTrouble(out *bool, level slog.Level, err error, begins, ends string) {
	if err != nil && !*out {
		r.log.Log(context.Background(), level, begins, "error", err)
	}
	if err == nil && *out {
		r.log.Info(ends)
	}
	*out = err != nil
}

// heartbeat sends one heartbeat, unless this process is no longer a member, which it finds out. A heartbeat of unknown
// outcome needs no resolving: the next one reads first.
func (r *Registry) heartbeat(ctx context.Context, own *entry) error {
	if own != nil && own.Incarnation != r.incarnation {
		own = nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.trips.bound(timing.WriteTimeout))
	defer cancel()
	return stillMember(r.write(ctx, own, func(own *Member) bool {
		own.Heartbeat++
		r.describe(own)
		return !r.left.Load()
	}))
}

// stillMember returns nil for the errors that Ended reports.
func stillMember(err error) error {
	if errors.Is(err, ErrRemoved) || errors.Is(err, ErrReplaced) {
		return nil
	}
	return err
}

// Advertise changes the URLs that clients are directed to.
func (r *Registry) Advertise(ctx context.Context, clientURLs []string) error {
	clientURLs = slices.Clone(clientURLs)
	return r.write(ctx, nil, func(own *Member) bool {
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
	r.refreshes.Close(ErrRemoved)
	if r.cfg.Temporary {
		return stillMember(r.removeSelf(ctx))
	}
	return stillMember(r.write(ctx, nil, func(own *Member) bool {
		own.Stopped = true
		own.Heartbeat++
		return true
	}))
}

// write changes this member's own row until it has taken effect, or change reports
// that nothing has to be changed. It lists the members first, unless the row was just
// read, and fails with what ended the Registry if it has.
func (r *Registry) write(ctx context.Context, own *entry, change func(own *Member) bool) error {
	return commit(ctx, r.store, func(batch sqlstore.BatchWrite, _ bool) error {
		if own == nil {
			t, err := r.listCurrent(ctx)
			if err != nil {
				return err
			}
			e, _ := t.named(r.cfg.Name)
			own = &e
		}
		next, raw := own.Member, own.raw
		own = nil
		if !change(&next) {
			return errDone
		}
		next.Challenge = 0
		batch.CAS(next.key(), next.encode(), raw)
		return nil
	})
}
