package replica

import (
	"context"
	"errors"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// recountInterval is after how long the bytes of all rows are counted again, though they are known: something else may
// have changed the table.
const recountInterval = 24 * time.Hour

// countBytes counts the bytes of all rows if they are not known, and from time to time, until ctx ends.
func (l *leader) countBytes(ctx context.Context) {
	r := l.replica
	for failures := 0; ctx.Err() == nil; {
		if failures > 0 && retry.Database.Wait(ctx, failures) != nil {
			return
		}
		wait, err := l.recountIn(ctx)
		if err == nil && wait > 0 && retry.Sleep(ctx, wait) != nil {
			return
		}
		if err == nil {
			err = l.recount(ctx)
		}
		if failures++; err == nil {
			failures = 0
		} else if ctx.Err() == nil && l.Lost() == nil {
			r.log.Warn("failed to count the bytes of all rows, trying again", "error", err)
		}
	}
}

// recountIn returns how long to wait before the bytes of all rows have to be counted.
func (l *leader) recountIn(ctx context.Context) (time.Duration, error) {
	if !l.bytes.Known() {
		return 0, nil
	}
	row, err := l.replica.store.Get(ctx, coder.CountedKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) { // there was nothing to count when the table was new
		return recountInterval, nil
	}
	var at int64
	if err == nil {
		at, err = coder.DecodeInt64(row)
	}
	// Other members' clocks may differ from this one.
	return min(time.Until(time.Unix(at, 0).Add(recountInterval)), recountInterval), err
}

// recount counts the bytes of all rows, and writes down when that was. The commit also stores the result.
func (l *leader) recount(ctx context.Context) error {
	r, known := l.replica, l.bytes.Known()
	corrected, err := l.bytes.Scan(ctx, r.store)
	if err != nil {
		return err
	}
	if known && corrected != 0 {
		r.log.Info("the count of the bytes of all rows was corrected", "bytes", corrected)
	}
	if err := l.setRow(ctx, coder.CountedKey(), coder.EncodeInt64(time.Now().Unix())); err != nil {
		return err
	}
	return r.Space.Refresh(ctx)
}
