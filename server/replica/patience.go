package replica

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// errSilent is the error of a takeover that the database keeps waiting. The node may lead later.
var errSilent = errors.New("the database does not answer a new leader")

// patience ends the context of a takeover once the database has answered nothing for a time. A
// takeover that reads many rows takes long, and is not ended while they arrive.
type patience struct {
	limit time.Duration
	ctx   context.Context
	end   context.CancelCauseFunc
	timer *time.Timer
}

// newPatience returns a patience whose limit begins now, and the context that it ends. The
// caller must call stop.
func newPatience(ctx context.Context, limit time.Duration) (context.Context, *patience) {
	p := &patience{limit: limit}
	p.ctx, p.end = context.WithCancelCause(ctx)
	p.timer = time.AfterFunc(limit, func() { p.end(fmt.Errorf("%w for %s", errSilent, limit)) })
	return p.ctx, p
}

// answered begins the limit anew.
func (p *patience) answered() { p.timer.Reset(p.limit) }

// stop ends the context, and returns err with the reason if the database was silent.
func (p *patience) stop(err error) error {
	p.timer.Stop()
	defer p.end(nil)
	if cause := context.Cause(p.ctx); err != nil && errors.Is(cause, errSilent) && !errors.Is(err, errSilent) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// attended returns store, each of whose answers and rows counts as an answer.
func (p *patience) attended(store sqlstore.Store) sqlstore.Store { return attended{store, p} }

// attended is a store for the reads of a takeover.
type attended struct {
	sqlstore.Store
	patience *patience
}

func (s attended) Get(ctx context.Context, key []byte) ([]byte, error) {
	defer s.patience.answered()
	return s.Store.Get(ctx, key)
}

func (s attended) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	defer s.patience.answered()
	return s.Store.MultiGet(ctx, keys)
}

func (s attended) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	return func(yield func(sqlstore.Row, error) bool) {
		for row, err := range s.Store.Iter(ctx, r) {
			s.patience.answered()
			if !yield(row, err) {
				return
			}
		}
	}
}
