package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// DefaultBump is what etcd's documents recommend to raise the revision by: more
// than a cluster writes in a week at 1,500 writes a second.
const DefaultBump = 1_000_000_000

// Previous is what a table held before a Restore.
type Previous struct {
	// Revision is the newest one that the table had, or that is known to be lost from it; 0 if nothing was
	// ever written there.
	Revision int64

	found *Findings       // nil for a table that BeginRestore takes
	over  []coder.JobKind // what else is overtaken then
}

// FindPrevious looks at a table that is to be restored, and does not change it. If a restore was interrupted, it
// returns the revision of what that one replaced; if replace is set, also after a Discard. Errors: ErrNotEmpty and
// ErrReverting unless replace is set, ErrImporting, the database's.
func FindPrevious(ctx context.Context, store sqlstore.Store, replace bool) (*Previous, error) {
	switch err := RefuseUnfinished(ctx, store); {
	case errors.Is(err, ErrRestoring):
		return previousOfInterrupted(ctx, store)
	case replace && errors.Is(err, ErrReverting):
		return previousOfInterrupted(ctx, store, coder.JobRevert)
	case err != nil:
		return nil, err
	}
	switch empty, err := IsEmpty(ctx, store); {
	case err != nil:
		return nil, err
	case empty:
		return &Previous{}, nil
	case !replace:
		return nil, ErrNotEmpty
	}
	found, err := Examine(ctx, store)
	if errors.Is(err, ErrNothingToRecover) {
		return &Previous{found: &Findings{CompactRevision: -1}}, nil
	}
	if err != nil {
		return nil, err
	}
	p := &Previous{found: found}
	if newest := found.Newest(); newest > 1 { // a new store is at 1
		p.Revision = newest
	}
	return p, nil
}

// previousOfInterrupted reads the fence row alone: the other rows may be those of the interrupted job.
func previousOfInterrupted(ctx context.Context, store sqlstore.Store, over ...coder.JobKind) (*Previous, error) {
	token, _, err := fence.LoadToken(ctx, store)
	if err != nil {
		return nil, err
	}
	return &Previous{Revision: token.Revision, over: over}, nil
}

// Raise returns where a restored store continues whose newest revision is rev: above every revision that was in the
// table. If it had none, that is rev.
func (p *Previous) Raise(rev int64) (int64, error) {
	if p.Revision == 0 {
		return rev, nil
	}
	return Bump(max(rev, p.Revision), DefaultBump)
}

// Bump returns rev raised by a number, which must be at least 1.
func Bump(rev, by int64) (int64, error) {
	if by < 1 || rev > math.MaxInt64-by {
		return 0, fmt.Errorf("the revision %d cannot be raised by %d", rev, by)
	}
	return rev + by, nil
}

// Begin begins the Restore as BeginRestore does. A table that is not empty it takes in one step that fences every
// server that still runs, and that keeps the revision in the fence row, for the case that this restore is interrupted
// as well. Errors: ErrFenceMoved, without writing anything, if the fence row has changed since FindPrevious;
// ErrRestoring, if a restore has begun since; those of BeginRestore.
func (p *Previous) Begin(ctx context.Context, store sqlstore.Store, compacted int64) (*Restore, error) {
	if p.found == nil {
		return begin(ctx, store, coder.JobRestore, append(p.over, coder.JobRestore), compacted, requireEmpty(ctx, store))
	}
	next, err := p.found.Plan(1, false)
	if err != nil {
		return nil, err
	}
	next.Token.Revision = p.Revision
	return begin(ctx, store, coder.JobRestore, nil, compacted, func(batch sqlstore.BatchWrite) error {
		raw, err := store.Get(ctx, coder.FenceKey())
		switch {
		case err != nil && !errors.Is(err, sqlstore.ErrKeyNotFound):
			return err
		case !bytes.Equal(raw, p.found.rawToken):
			return ErrFenceMoved
		case raw == nil:
			batch.PutIfNotExist(coder.FenceKey(), coder.EncodeFenceToken(next.Token))
		default:
			batch.CAS(coder.FenceKey(), coder.EncodeFenceToken(next.Token), raw)
		}
		return nil
	})
}
