package replica

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/compact"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
)

// Compact discards history below rev: later reads below it fail with mvcc.ErrCompacted. The
// rows are removed in the background. With physical, Compact returns after that. It returns
// the store's revision. Errors: mvcc.ErrCompacted at or below the compact revision,
// mvcc.ErrFutureRevision; with physical, mvcc.ErrTimeout if no rows could be removed for
// compact.DefaultPatience.
func (b *Replica) Compact(ctx context.Context, as auth.Permit, rev int64, physical bool) (int64, error) {
	l, err := b.lead()
	if err != nil {
		return 0, err
	}
	if err := b.alarms.CheckWrite(false); err != nil {
		return 0, err
	}
	current := int64(0)
	if err := l.submit(ctx, as, func(tx *write.Tx) error {
		current = tx.Revision()
		return b.compacted.Move(tx, rev, func() {
			b.noteCompacted(rev)
			l.remover.Wake()
			b.log.Info("compacted", "revision", rev)
		})
	}); err != nil {
		return 0, err
	}
	if !physical {
		return current, nil
	}
	removed, err := l.remover.Wait(ctx, rev, l.pipeline.Done())
	switch {
	case errors.Is(err, compact.ErrStalled):
		return 0, fmt.Errorf("%w: %w", mvcc.ErrTimeout, err)
	case err != nil:
		return 0, err
	case !removed:
		return 0, mvcc.ErrLeaderLost
	}
	return current, nil
}

// claimRemoval writes the claim row of the remover.
func (l *leader) claimRemoval(ctx context.Context, claim []byte) error {
	return l.submit(ctx, auth.System, func(tx *write.Tx) error {
		tx.SetRow(coder.ClaimKey(), claim)
		return nil
	})
}

// autoCompact compacts in the configured mode.
func (l *leader) autoCompact(ctx context.Context) {
	l.b.cfg.AutoCompaction.Run(ctx, l.b.Revision, func(ctx context.Context, rev int64) bool {
		_, err := l.b.Compact(ctx, auth.System, rev, false)
		switch {
		case err == nil, errors.Is(err, mvcc.ErrCompacted):
			return true
		case ctx.Err() == nil:
			l.b.log.Warn("auto-compaction failed", "revision", rev, "error", err)
		}
		return false
	})
}
