package compact

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/server/quota"
)

// CompactorConfig configures a Compactor. All fields are required. Of Remover, it sets Revision,
// Claim and TombstonesRemoved.
type CompactorConfig struct {
	Remover  Config
	Mark     *Mark
	Alarms   *quota.Alarms
	Pipeline *write.Pipeline
	Timeout  *mvcc.Timeout
	// Stopped returns why the node serves nothing: then it writes nothing either. It is nil while the node serves.
	Stopped func() error
	// Raised makes a new compact revision known to readers and watchers: it must call Mark.Raise.
	Raised func(rev int64)
}

// Compactor compacts while its node leads. Safe for concurrent use.
type Compactor struct {
	*Remover
	cfg CompactorConfig
}

// NewCompactor returns the Compactor of a leadership.
func NewCompactor(cfg CompactorConfig) *Compactor {
	c := &Compactor{cfg: cfg}
	cfg.Remover.Revision, cfg.Remover.Claim = cfg.Mark.Revision, c.claim
	cfg.Remover.TombstonesRemoved = cfg.Pipeline.TombstonesRemoved
	c.Remover = NewRemover(cfg.Remover)
	return c
}

// Compact discards history below rev: later reads below it fail with mvcc.ErrCompacted. The
// rows are removed in the background. With physical, Compact returns after that. It returns
// the store's revision. Errors: mvcc.ErrCompacted at or below the compact revision,
// mvcc.ErrFutureRevision; with physical, mvcc.ErrTimeout if no rows could be removed for
// Config.Deadline.
func (c *Compactor) Compact(ctx context.Context, as auth.Permit, rev int64, physical bool) (int64, error) {
	if err := c.cfg.Alarms.CheckWrite(false); err != nil {
		return 0, err
	}
	var current int64
	if err := c.submit(ctx, as, func(tx *write.Tx) error {
		current = tx.Revision()
		return c.cfg.Mark.Move(tx, rev, func() {
			c.cfg.Raised(rev)
			c.Wake()
			c.cfg.Remover.Logger.Info("compacted", "revision", rev)
		})
	}); err != nil {
		return 0, err // current may still be written to
	}
	if !physical {
		return current, nil
	}
	removed, err := c.Wait(ctx, rev, c.cfg.Pipeline.Done())
	switch {
	case errors.Is(err, ErrStalled):
		return 0, fmt.Errorf("%w: %w", mvcc.ErrTimeout, err)
	case err != nil:
		return 0, err
	case !removed:
		return 0, mvcc.ErrLeaderLost
	}
	return current, nil
}

// RunAuto compacts as auto says until ctx ends. newest returns the newest revision.
func (c *Compactor) RunAuto(ctx context.Context, auto Auto, newest func() int64) {
	auto.Run(ctx, newest, func(ctx context.Context, rev int64) bool {
		_, err := c.Compact(ctx, auth.System, rev, false)
		switch {
		case err == nil, errors.Is(err, mvcc.ErrCompacted):
			return true
		case ctx.Err() == nil:
			c.cfg.Remover.Logger.Warn("auto-compaction failed", "revision", rev, "error", err)
		}
		return false
	})
}

// claim writes the claim row of the Remover.
func (c *Compactor) claim(ctx context.Context, claim []byte) error {
	return c.submit(ctx, auth.System, func(tx *write.Tx) error {
		tx.SetRow(coder.ClaimKey(), claim)
		return nil
	})
}

// submit executes change in the write pipeline, if as permits it.
func (c *Compactor) submit(ctx context.Context, as auth.Permit, change func(tx *write.Tx) error) error {
	if err := c.cfg.Stopped(); err != nil {
		return err
	}
	ctx, cancel := c.cfg.Timeout.Bound(ctx)
	defer cancel()
	return c.cfg.Pipeline.Submit(ctx, as, write.Func(func(_ context.Context, tx *write.Tx) error { return change(tx) }))
}
