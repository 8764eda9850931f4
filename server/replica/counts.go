package replica

import (
	"context"
	"errors"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

const (
	// countsInterval is the shortest time between two writes of the counts row while the node
	// leads.
	countsInterval = 5 * time.Second
	// countsRevisions is after how many revisions the row is written again. A reader takes some
	// ten milliseconds to read so much of the log.
	countsRevisions = 10_000
	// countsKeys is for how many keys there is a counts row. Fewer are counted within 50 ms.
	countsKeys = 50_000
)

// countsKeeper keeps the counts row of a leadership. Safe for concurrent use.
type countsKeeper struct {
	l *leader

	// turn holds a token while keep runs. Statements of the database run in it, so the handover
	// must be able to stop waiting for its turn.
	turn     chan struct{}
	recalled bool  // the view has the counts of the row before
	stored   int64 // revision of the row, as far as it is known to be of use
	spans    int   // how many the view had then
}

// run writes the row from time to time until ctx ends. A row is of use as long as the log
// reaches back to its revision, so it is written again after a compaction, too.
func (k *countsKeeper) run(ctx context.Context) {
	keep := func() {
		if err := k.keep(ctx, countsRevisions); err != nil && ctx.Err() == nil && k.l.Lost() == nil {
			k.l.replica.log.Warn("failed to store the counts of keys, trying again", "error", err)
		}
	}
	keep()
	for range retry.Every(ctx, countsInterval) {
		keep()
	}
}

// keep writes the row if that is due: if it is that many revisions old, if the log no longer
// reaches back to it, or if other counted spans are known. A row that is never written is of no use to
// a later leader, so the first call gives the view what the row before has.
func (k *countsKeeper) keep(ctx context.Context, revisions int64) error {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	r := k.l.replica
	if !k.recalled {
		var err error
		k.stored, err = r.Reader.LoadCounts(ctx)
		if errors.Is(err, coder.ErrMalformed) {
			r.log.Warn("the stored counts of keys are of no use, counting again", "error", err)
		} else if err != nil {
			return err
		}
		k.recalled = true
		k.spans = r.view.Stats().Counted
	}
	rev, spans := r.Revision(), r.view.Stats().Counted
	if rev-k.stored < revisions && r.CompactRevision() <= k.stored+1 && spans == k.spans {
		return nil
	}
	counts, ok := r.view.Counts(rev)
	if !ok || counts.Keys() < r.cfg.countsKeys {
		return nil
	}
	if err := k.l.setRow(ctx, coder.CountsKey(), coder.EncodeCounts(counts)); err != nil {
		return err
	}
	k.stored, k.spans = rev, spans
	return nil
}
