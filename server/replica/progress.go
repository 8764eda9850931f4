package replica

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// errNoProgress is the error of a takeover that the database keeps waiting. The node may lead later.
var errNoProgress = errors.New("the database does not answer a new leader")

// progressDeadline ends the context of a takeover once the database has answered nothing for a time. A
// takeover that reads many rows takes long, and is not ended while they arrive.
type progressDeadline struct {
	limit time.Duration
	ctx   context.Context
	end   context.CancelCauseFunc
	timer *time.Timer
}

// newProgressDeadline returns a deadline whose limit begins now, and the context that it ends. The
// caller must call stop.
func newProgressDeadline(ctx context.Context, limit time.Duration) (context.Context, *progressDeadline) {
	p := &progressDeadline{limit: limit}
	p.ctx, p.end = context.WithCancelCause(ctx)
	p.timer = time.AfterFunc(limit, func() { p.end(fmt.Errorf("%w for %s", errNoProgress, limit)) })
	return p.ctx, p
}

// extend begins the limit anew, after an answer.
func (p *progressDeadline) extend() { p.timer.Reset(p.limit) }

// stop ends the context, and returns err with the reason if the deadline has passed.
func (p *progressDeadline) stop(err error) error {
	p.timer.Stop()
	defer p.end(nil)
	if cause := context.Cause(p.ctx); err != nil && errors.Is(cause, errNoProgress) && !errors.Is(err, errNoProgress) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// observe returns store, each of whose answers and rows extends the deadline.
func (p *progressDeadline) observe(store sqlstore.Store) sqlstore.Store {
	return observedStore{store, p}
}

// observedStore is a store for the reads of a takeover.
type observedStore struct {
	sqlstore.Store
	progress *progressDeadline
}

func (s observedStore) Get(ctx context.Context, key []byte) ([]byte, error) {
	defer s.progress.extend()
	return s.Store.Get(ctx, key)
}

func (s observedStore) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	defer s.progress.extend()
	return s.Store.MultiGet(ctx, keys)
}

func (s observedStore) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	return func(yield func(sqlstore.Row, error) bool) {
		for row, err := range s.Store.Iter(ctx, r) {
			s.progress.extend()
			if !yield(row, err) {
				return
			}
		}
	}
}
