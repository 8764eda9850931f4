package read

import (
	"context"
	"errors"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// loadTries is how often the log is read on while keys are created faster than that.
const loadTries = 5

// LoadCounts gives the view the counts of the counts row, unless it has some. It returns the
// revision of the row, 0 if there is none that is of use. Errors: coder.ErrMalformed, ctx's,
// the database's.
func (r *Reader) LoadCounts(ctx context.Context) (int64, error) {
	select {
	case r.counting <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-r.counting }()
	return r.loadCounts(ctx)
}

// tryLoadCounts is LoadCounts for a caller that has the token of counting. A row that cannot be read is
// none.
func (r *Reader) tryLoadCounts(ctx context.Context) error {
	_, err := r.loadCounts(ctx)
	if errors.Is(err, coder.ErrMalformed) {
		return nil
	}
	return err
}

func (r *Reader) loadCounts(ctx context.Context) (stored int64, err error) {
	if r.view.Stats().Counted > 0 {
		return 0, nil
	}
	row, err := r.store.Get(ctx, coder.CountsKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	counts, err := coder.DecodeCounts(row)
	if err != nil {
		return 0, err
	}
	stored = counts.Revision
	if err := r.node.Await(ctx, stored); err != nil {
		return 0, err
	}
	for range loadTries {
		now := r.node.Revision()
		if now-stored > max(maxCountRoll, counts.Keys()) {
			return 0, nil // counting them again is faster
		}
		if err := r.eachChange(ctx, counts.Revision, now, func(c *coder.Change) { counts.Add(c.Key, c.Net()) }); err != nil {
			return 0, err
		}
		// The log rows that were read were all there if the first one still could be needed.
		if mark, err := r.node.Mark(ctx); err != nil || now > counts.Revision && mark > counts.Revision+1 {
			return 0, err
		}
		if counts.Revision = now; r.view.AddCounts(counts) {
			return stored, nil
		}
	}
	return 0, nil
}
