package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/steptrace"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
	"github.com/sqlbrain/sqlbrain/watch"
)

// CatchUp applies log rows up to the newest revision that may be visible, see visibleLimit.
// Like Apply it must not be called concurrently, nor while the node leads. Errors: those of
// RefreshState.
func (r *Replica) CatchUp(ctx context.Context) error {
	began := r.cfg.Trace.Now()
	cur, err := r.RefreshState(ctx)
	if err != nil {
		return err
	}
	r.cfg.Trace.Record(steptrace.Step{Kind: steptrace.Find, Began: began, Revision: cur})
	r.limit.observe(cur, time.Now())
	to, token := min(cur, r.limit.revision(time.Now())), r.seen.Token()
	if to <= r.Revision() && token == r.caughtUp {
		_, err = r.readMark(ctx)
	} else if err = r.catchUpTo(ctx, r.history, to); err == nil {
		r.caughtUp = token
		r.Divergence.checkedIn(token.Term)
	}
	if err != nil {
		return err
	}
	r.recordFed()
	return nil
}

// RefreshState reads the state of the cluster in the table: term, newest revision, alarms, users and
// roles. It returns the newest revision, and does not make it visible. It must not be called while the
// node leads. Errors: ErrNotServing if the database has lost data that this node has seen,
// the database's.
func (r *Replica) RefreshState(ctx context.Context) (revision int64, err error) {
	if err := r.Stopped(); err != nil {
		return 0, err
	}
	cur, rows, err := r.readFenceRow(ctx, coder.AuthSettingsKey())
	if err != nil {
		return 0, err
	}
	if cur == (coder.FenceToken{}) {
		return r.Revision(), nil // no node has led yet
	}
	settings := rows[0]
	r.seen.Observe(cur)
	if err := r.Alarms.Load(ctx); err != nil {
		return 0, err
	}
	known, err := r.Auth.Knows(settings)
	if !known && err == nil {
		_, err = r.Auth.Load(ctx)
	}
	if err == nil {
		r.refreshed.Store(&cur)
	}
	return cur.Revision, err
}

// readFenceRow reads the fence row, the zero value if there is none yet, and the rows of keys. Errors: ErrNotServing if
// the database has lost data that this node has seen, the database's.
func (r *Replica) readFenceRow(ctx context.Context, keys ...[]byte) (cur coder.FenceToken, rows [][]byte, err error) {
	verify := r.seen.Verifier()
	rows, err = fence.ReadChecked(ctx, r.store, keys...)
	switch {
	case err == nil:
	case errors.Is(err, fence.ErrDataLost):
		return cur, nil, r.StopServing(err)
	default:
		return cur, nil, err
	}
	token := rows[0]
	if token != nil {
		if cur, err = coder.DecodeFenceToken(token); err != nil {
			return cur, nil, r.StopServing(fmt.Errorf("%w: %w", fence.ErrDataLost, err))
		}
	}
	if err := verify(cur); err != nil {
		if token == nil {
			err = fmt.Errorf("%w: the fence row is gone", fence.ErrDataLost)
		}
		return cur, nil, r.StopServing(err)
	}
	return cur, rows[1:], nil
}

// catchUpTo reads the compaction mark, and publishes the changes in log up to rev. After each read it
// compares the revisions that were visible on the node with log, so that the new ones continue them.
func (r *Replica) catchUpTo(ctx context.Context, log *history.Log, rev int64) error {
	if _, err := r.readMark(ctx); err != nil {
		return err
	}
	if r.Revision() >= rev {
		return r.checkContinues(ctx, log)
	}
	for r.Revision() < rev {
		from := r.Revision() + 1
		events, next, err := log.Changes(ctx, []byte{0}, []byte{0}, from, rev, history.UsualBytes)
		var compacted *watch.CompactedError
		switch {
		case errors.As(err, &compacted):
			if err := r.skipTo(min(compacted.Revision-1, rev)); err != nil {
				return err
			}
			continue
		case err != nil:
			return fmt.Errorf("reading the log: %w", err)
		}
		if err := r.checkContinues(ctx, log); err != nil {
			return err
		}
		if err := r.publish(events, min(next-1, rev)); err != nil {
			return err
		}
	}
	return nil
}

// checkContinues checks for divergence before the node publishes more of log, or leads. If nothing
// is left to compare it discards what the node has in memory.
func (r *Replica) checkContinues(ctx context.Context, log *history.Log) error {
	err := r.Divergence.compare(ctx, log)
	if errors.Is(err, errForgotten) {
		return r.skipTo(r.Revision())
	}
	return err
}

// FinalDivergenceCheck compares what this node has seen with the table, and reports a loss. It is for
// a node that no longer serves for another reason, and returns once the table has answered, or ctx
// has ended.
func (r *Replica) FinalDivergenceCheck(ctx context.Context) {
	for failures := 1; ; failures++ {
		bounded, cancel := context.WithTimeout(ctx, timing.TablePollTimeout)
		_, _, err := r.readFenceRow(bounded)
		if err == nil {
			err = r.Divergence.compareShared(bounded)
		}
		cancel()
		if err == nil || errors.Is(err, mvcc.ErrNotServing) || errors.Is(err, fence.ErrUnproven) ||
			retry.Database.Wait(ctx, failures) != nil {
			return
		}
	}
}

// readMark reads the compaction mark from the table, makes it known, and returns it.
func (r *Replica) readMark(ctx context.Context) (int64, error) {
	rev, err := r.compacted.Read(ctx)
	if err != nil {
		return 0, err
	}
	r.raiseCompacted(rev)
	return r.CompactRevision(), nil
}
