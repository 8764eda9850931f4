package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

var (
	// errDeposed: another process took the leadership of the table.
	errDeposed = errors.New("another server took over this datastore")
	// errDataLost: the chain row is older than what was acknowledged, or gone.
	errDataLost = errors.New("the database lost committed data")
)

// chain is this leader's hold on the chain row. Only the sequencer changes it.
type chain struct {
	store sqlstore.Store
	log   *slog.Logger
	retry *retrier
	// held is the value this leader last wrote, byte for byte what the row holds.
	held coder.Chain
	// replaced is what the row held before; zero if there was no row.
	replaced coder.Chain
}

// takeChain makes the caller the leader: it raises the term, which fences
// whoever led before, and restores the newest revision. On an empty table it
// creates the chain at revision 1, as a fresh etcd has it. verify judges what the
// row holds before it is replaced.
func takeChain(ctx context.Context, store sqlstore.Store, log *slog.Logger, verify func(coder.Chain) error) (*chain, error) {
	for {
		c := &chain{store: store, log: log, retry: &retrier{}}
		batch := store.BeginBatchWrite()
		old, err := store.Get(ctx, coder.ChainKey())
		switch {
		case errors.Is(err, sqlstore.ErrKeyNotFound):
			if err := verify(coder.Chain{}); err != nil {
				return nil, err
			}
			if err := refuseData(ctx, store); err != nil {
				return nil, err
			}
			c.held = coder.Chain{Sequence: 1, Term: 1, Revision: 1}
			batch.PutIfNotExist(coder.ChainKey(), coder.EncodeChain(c.held))
		case err != nil:
			return nil, fmt.Errorf("reading the chain row: %w", err)
		default:
			cur, err := coder.DecodeChain(old)
			if err != nil {
				return nil, fmt.Errorf("reading the chain row: %w", err)
			}
			if err := verify(cur); err != nil {
				return nil, err
			}
			c.replaced = cur
			c.held = coder.Chain{Sequence: cur.Sequence + 1, Term: cur.Term + 1, Revision: cur.Revision}
			batch.CAS(coder.ChainKey(), coder.EncodeChain(c.held), old)
		}
		err = batch.Commit(ctx)
		var conflict *sqlstore.Conflict
		switch {
		case err == nil:
			return c, nil
		case errors.As(err, &conflict), errors.Is(err, sqlstore.ErrUncertain):
			// Somebody else, or perhaps this very attempt, got in: a term taken
			// and not used costs nothing, so take the next one.
			if ctx.Err() != nil {
				return nil, fmt.Errorf("taking the term: %w", err)
			}
		default:
			return nil, fmt.Errorf("taking the term: %w", err)
		}
	}
}

// refuseData returns errDataLost if the table, which has no chain row, has data:
// its revisions must not be given out again.
func refuseData(ctx context.Context, store sqlstore.Store) error {
	for _, bounds := range []func() (lo, hi []byte){
		func() (lo, hi []byte) { return coder.LogBounds(0, math.MaxInt64) },
		func() (lo, hi []byte) { return coder.IndexBounds([]byte{0}, []byte{0}) },
	} {
		lo, hi := bounds()
		it := store.Iter(ctx, sqlstore.Range{Start: lo, End: hi, Limit: 1, KeysOnly: true})
		found := it.Next()
		if err := errors.Join(it.Err(), it.Close()); err != nil {
			return fmt.Errorf("looking for data in a table without a chain row: %w", err)
		}
		if found {
			return fmt.Errorf("%w: the chain row is gone; see sqlbrain recover", errDataLost)
		}
	}
	return nil
}

// predecessorMayAnswer reports whether whoever led before may still answer reads
// from memory: unless it said, in the very value that was replaced, that it stopped.
// The lock row cannot tell: a process that slept since it had the lock may have taken
// the chain row after the last one to have it.
func (c *chain) predecessorMayAnswer() bool {
	return c.replaced != (coder.Chain{}) && !c.replaced.IsResigned()
}

// resign writes down that this leader has stopped.
func (c *chain) resign(ctx context.Context) error {
	batch := c.store.BeginBatchWrite()
	batch.CAS(coder.ChainKey(), coder.EncodeChain(c.held.Resigned()), coder.EncodeChain(c.held))
	return batch.Commit(ctx)
}

// next returns the chain value of a commit that ends at revision rev.
func (c *chain) next(rev int64) coder.Chain {
	n := c.held
	n.Sequence++
	n.Revision = rev
	return n
}

// settle finds out what became of a commit that wanted to write want. It returns
// true if the commit took effect. If it returns false, the commit did not and
// never will: the row was raised to another value, so that a late packet of the
// commit finds a mark it does not expect. It keeps trying while the database
// cannot be reached, until ctx ends.
func (c *chain) settle(ctx context.Context, want coder.Chain) (committed bool, err error) {
	if off("settle") {
		c.held = want
		return true, nil
	}
	mine := map[coder.Chain]bool{c.held: true}
	c.retry.reset()
	for {
		committed, err = c.trySettle(ctx, want, mine)
		switch {
		case err == nil, errors.Is(err, errDeposed), errors.Is(err, errDataLost):
			return committed, err
		}
		c.log.Warn("cannot settle a commit whose outcome is unknown, trying again", "error", err)
		if err := c.retry.wait(ctx); err != nil {
			return false, err
		}
	}
}

func (c *chain) trySettle(ctx context.Context, want coder.Chain, mine map[coder.Chain]bool) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	raw, err := c.store.Get(ctx, coder.ChainKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return false, fmt.Errorf("%w: the chain row is gone", errDataLost)
	}
	if err != nil {
		return false, err
	}
	cur, err := coder.DecodeChain(raw)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errDataLost, err)
	}
	if cur == want {
		c.held = want
		return true, nil
	}
	if !mine[cur] {
		return false, c.judge(cur)
	}
	raised := cur
	raised.Sequence++
	raised.Attempt++
	batch := c.store.BeginBatchWrite()
	batch.CAS(coder.ChainKey(), coder.EncodeChain(raised), raw)
	mine[raised] = true
	switch err := batch.Commit(ctx); {
	case errors.Is(err, sqlstore.ErrRowMissing):
		return false, rowMissing(err)
	case err != nil:
		return false, err // a conflict too: look again
	}
	c.held = raised
	return false, nil
}

// judge explains a chain value that this leader did not write.
func (c *chain) judge(cur coder.Chain) error { return judgeChain(c.held, cur) }

// judgeChain compares what the chain row holds with what is known to have been in it
// before. Whoever took over since, the row does not go back: a later term that begins
// below a revision that was acknowledged has lost it.
func judgeChain(held, cur coder.Chain) error {
	switch {
	case cur.Sequence < held.Sequence || cur.Revision < held.Revision || cur.Term < held.Term:
		return fmt.Errorf("%w: revision %d was acknowledged, the database is at %d (term %d, sequence %d; expected term %d, sequence %d)",
			errDataLost, held.Revision, cur.Revision, cur.Term, cur.Sequence, held.Term, held.Sequence)
	case cur.Term > held.Term:
		return fmt.Errorf("%w: it is at term %d, this server at %d", errDeposed, cur.Term, held.Term)
	default:
		return nil
	}
}

const (
	settleTimeout = 5 * time.Second
	minRetryDelay = 10 * time.Millisecond
	maxRetryDelay = 2 * time.Second
)

// retrier spaces out attempts against a database that does not answer. It is
// used by one goroutine.
type retrier struct {
	delay time.Duration
	most  time.Duration // longest delay; maxRetryDelay
}

func (r *retrier) reset() { r.delay = 0 }

// wait sleeps for the next delay, doubled each time, or until ctx ends.
func (r *retrier) wait(ctx context.Context) error {
	r.delay = min(max(2*r.delay, minRetryDelay), cmp.Or(r.most, maxRetryDelay))
	t := time.NewTimer(r.delay)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
