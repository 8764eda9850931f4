package fence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/steptrace"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// ResolveTimeout bounds one attempt to find out what became of a commit, and one look at
// the fence row.
const ResolveTimeout = 5 * time.Second

// Holder is a leader that holds the fence row. Only one goroutine may use it at a time.
type Holder struct {
	cfg Config
	// held is the value this leader last wrote, byte for byte what the row holds.
	held coder.FenceToken
	// replaced is what the row held before; zero if there was no row.
	replaced coder.FenceToken
	// ended says why there are no more commits: next tokens may equal those that are in the row already.
	ended error
}

// Config says how to take and keep the fence row. All fields but InDoubt and Trace are required.
type Config struct {
	Store sqlstore.Store
	Log   *slog.Logger
	// Lease is extended by each successful commit.
	Lease *ReadLease
	// Verify checks what the row holds before it is replaced.
	Verify  func(coder.FenceToken) error
	Metrics *Metrics
	// InDoubt is called when the outcome of a commit is unknown, before it is resolved.
	InDoubt func()
	Trace   *steptrace.Trace // nil: steps are not recorded
}

// Value returns what this leader last wrote to the fence row.
func (h *Holder) Value() coder.FenceToken { return h.held }

// Acquire makes the caller the leader: it raises the term, which fences
// the leader before, and restores the newest revision. On an empty table it
// creates the fence row at revision 1, as a new etcd has it. Errors: those of Verify and
// CheckDataLoss, ErrDataLost for a table that has data and no fence row, the database's.
func Acquire(ctx context.Context, cfg Config) (*Holder, error) {
	store, verify := cfg.Store, cfg.Verify
	for failures := 1; ; failures++ {
		c := &Holder{cfg: cfg}
		batch := store.BeginBatchWrite()
		rows, err := ReadChecked(ctx, store)
		switch {
		case err == nil && rows[0] == nil:
			if err := verify(coder.FenceToken{}); err != nil {
				return nil, err
			}
			if err := refuseData(ctx, store); err != nil {
				return nil, err
			}
			c.held = coder.FenceToken{Sequence: 1, Term: 1, Revision: 1}
			batch.PutIfNotExist(coder.FenceKey(), coder.EncodeFenceToken(c.held))
		case err != nil:
			return nil, err
		default:
			old := rows[0]
			cur, err := coder.DecodeFenceToken(old)
			if err != nil {
				return nil, fmt.Errorf("reading the fence row: %w", err)
			}
			if err := verify(cur); err != nil {
				return nil, err
			}
			c.replaced = cur
			c.held = coder.FenceToken{Sequence: cur.Sequence + 1, Term: cur.Term + 1, Revision: cur.Revision,
				Bytes: cur.Bytes}
			batch.CAS(coder.FenceKey(), coder.EncodeFenceToken(c.held), old)
		}
		cfg.Trace.Record(steptrace.Step{Kind: steptrace.Take, Token: c.held, Expected: c.replaced})
		err = batch.Commit(ctx)
		cfg.Trace.Answer(err)
		var conflict *sqlstore.Conflict
		switch {
		case err == nil:
			return c, nil
		case errors.As(err, &conflict), errors.Is(err, sqlstore.ErrUncertain):
			// Somebody else, or perhaps this very attempt, got in: a term taken
			// and not used costs nothing, so take the next one.
			if conflict == nil {
				cfg.Log.Warn("the outcome of taking the fence row is unknown, trying again", "error", err)
			}
			if retry.Database.Wait(ctx, failures) != nil {
				return nil, fmt.Errorf("taking the term: %w", err)
			}
		default:
			return nil, fmt.Errorf("taking the term: %w", err)
		}
	}
}

// refuseData returns ErrDataLost if the table, which has no fence row, has data:
// its revisions must not be given out again.
func refuseData(ctx context.Context, store sqlstore.Store) error {
	for _, bounds := range []func() (lo, hi []byte){
		func() (lo, hi []byte) { return coder.LogBounds(0, math.MaxInt64) },
		func() (lo, hi []byte) { return coder.IndexBounds([]byte{0}, []byte{0}) },
	} {
		lo, hi := bounds()
		_, found, err := sqlstore.First(store.Iter(ctx, sqlstore.Range{Start: lo, End: hi, Limit: 1, KeysOnly: true}))
		if err != nil {
			return fmt.Errorf("looking for data in a table without a fence row: %w", err)
		}
		if found {
			return fmt.Errorf("%w: the fence row is gone; see sqlbrain recover", ErrDataLost)
		}
	}
	return nil
}

// PredecessorMayAnswer reports whether the leader before may still answer reads from
// memory. It cannot if there was none, or if the value that was replaced says that it
// stopped. The lock row cannot answer that: a process suspended since it held the lock may have
// taken the fence row after the last process to have it.
func (h *Holder) PredecessorMayAnswer() bool {
	return h.replaced != (coder.FenceToken{}) && !h.replaced.IsResigned()
}

// Resign records in the fence row that this leader has stopped serving, so that its
// successor need not wait for the read lease. It ends the read lease first. Errors:
// ErrDataLost if the row is missing, the database's.
func (h *Holder) Resign(ctx context.Context) error {
	batch := h.cfg.Store.BeginBatchWrite()
	batch.CAS(coder.FenceKey(), coder.EncodeFenceToken(h.held.Resigned()), coder.EncodeFenceToken(h.held))
	h.cfg.Trace.Record(steptrace.Step{Kind: steptrace.Resign, Token: h.held.Resigned(), Expected: h.held})
	err := batch.Commit(ctx)
	if errors.Is(err, sqlstore.ErrRowMissing) {
		return rowMissing(err)
	}
	return err
}

// Next returns the fencing token of a commit that ends at revision rev, with the bytes of the rows after it.
func (h *Holder) Next(rev, bytes int64) coder.FenceToken {
	n := h.held
	n.Sequence++
	n.Revision, n.Bytes = rev, bytes
	return n
}

// Outcome says what became of a commit.
type Outcome int

const (
	// Unknown: the commit may or may not have taken effect.
	Unknown Outcome = iota
	// NotWritten: it did not take effect, and never will.
	NotWritten
	// Written: it took effect.
	Written
)

// Commit writes next, a value of Next, and the rows that fill adds, in one atomic step. It
// bounds one attempt by timeout and resolves an unknown outcome. The outcomes are:
//
//   - Written: with ErrDataLost if a row that the commit replaced was missing.
//   - NotWritten: without an error if the commit may be tried again, with the next value
//     of Next. Else with a *sqlstore.Conflict if another row than the fence row conflicted,
//     with ErrDeposed, with ErrDataLost, or with the database's error.
//   - Unknown: with ErrDeposed or ErrDataLost, or with ctx's error if that ended before
//     the outcome was resolved.
//
// After Unknown, ErrDeposed and ErrDataLost each later commit is NotWritten with the same error.
// With expectConflict a conflict is returned without a look at which row conflicted.
func (h *Holder) Commit(ctx context.Context, next coder.FenceToken, timeout time.Duration, expectConflict bool,
	fill func(sqlstore.BatchWrite)) (Outcome, error) {
	if h.ended != nil {
		return NotWritten, h.ended
	}
	outcome, err := h.commit(ctx, next, timeout, expectConflict, fill)
	if outcome == Unknown || errors.Is(err, ErrDeposed) || errors.Is(err, ErrDataLost) {
		h.ended = err
	}
	return outcome, err
}

func (h *Holder) commit(ctx context.Context, next coder.FenceToken, timeout time.Duration, expectConflict bool,
	fill func(sqlstore.BatchWrite)) (Outcome, error) {
	batch := h.cfg.Store.BeginBatchWrite()
	if off("token") {
		batch.Put(coder.FenceKey(), coder.EncodeFenceToken(next))
	} else {
		batch.CAS(coder.FenceKey(), coder.EncodeFenceToken(next), coder.EncodeFenceToken(h.held))
	}
	fill(batch)
	started := h.cfg.Lease.Now()
	h.cfg.Trace.Record(steptrace.Step{Kind: steptrace.Commit, Token: next, Expected: h.held})
	bounded, cancel := context.WithTimeout(ctx, timeout)
	err := batch.Commit(bounded)
	cancel()
	h.cfg.Trace.Answer(err)
	var conflict *sqlstore.Conflict
	switch {
	case err == nil:
		h.held = next
		h.cfg.Lease.Extend(started)
		return Written, nil
	case errors.Is(err, sqlstore.ErrRowMissing):
		return Written, rowMissing(err)
	case errors.As(err, &conflict) && expectConflict:
		// Nothing was written, and there is nothing to resolve. If it was the fence row that
		// conflicted, the next attempt, which expects none, finds out.
		return NotWritten, conflict
	case errors.As(err, &conflict), errors.Is(err, sqlstore.ErrUncertain):
	default:
		return NotWritten, err
	}
	h.cfg.Log.Warn("a commit is in doubt, resolving its outcome by the fence row", "error", err, "revision", next.Revision)
	h.cfg.Metrics.InDoubt.Inc()
	if h.cfg.InDoubt != nil && conflict == nil {
		h.cfg.InDoubt()
	}
	committed, err := h.resolve(ctx, next)
	switch {
	case err != nil && conflict != nil && (errors.Is(err, ErrDeposed) || errors.Is(err, ErrDataLost)):
		return NotWritten, err
	case err != nil:
		return Unknown, err
	case committed:
		return Written, nil
	case conflict != nil:
		return NotWritten, conflict
	default:
		return NotWritten, nil // raised, so that the commit never happens
	}
}

// resolve finds out what became of an in-doubt commit, which wanted to write want. It returns
// true if the commit took effect. If it returns false, the commit did not and
// never will: the row was raised to another value, so that a late packet of the
// commit finds a mark it does not expect. It keeps trying while the database
// cannot be reached, until ctx ends.
func (h *Holder) resolve(ctx context.Context, want coder.FenceToken) (committed bool, err error) {
	if off("resolve") {
		h.held = want
		return true, nil
	}
	mine := map[coder.FenceToken]bool{h.held: true}
	for failures := 1; ; failures++ {
		committed, err = h.tryResolve(ctx, want, mine)
		switch {
		case err == nil, errors.Is(err, ErrDeposed), errors.Is(err, ErrDataLost):
			return committed, err
		}
		h.cfg.Log.Warn("cannot resolve an in-doubt commit, trying again", "error", err)
		if err := retry.Database.Wait(ctx, failures); err != nil {
			return false, err
		}
	}
}

func (h *Holder) tryResolve(ctx context.Context, want coder.FenceToken, mine map[coder.FenceToken]bool) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, ResolveTimeout)
	defer cancel()
	began := h.cfg.Trace.Now()
	cur, raw, err := readToken(ctx, h.cfg.Store)
	if err != nil {
		return false, err
	}
	h.cfg.Trace.Record(steptrace.Step{Kind: steptrace.Resolve, Began: began, Token: cur})
	if cur == want {
		h.held = want
		return true, nil
	}
	if !mine[cur] {
		return false, h.deposedBy(cur)
	}
	raised := cur
	raised.Sequence++
	raised.Attempt++
	batch := h.cfg.Store.BeginBatchWrite()
	batch.CAS(coder.FenceKey(), coder.EncodeFenceToken(raised), raw)
	mine[raised] = true
	h.cfg.Trace.Record(steptrace.Step{Kind: steptrace.Raise, Token: raised, Expected: cur})
	err = batch.Commit(ctx)
	h.cfg.Trace.Answer(err)
	switch {
	case errors.Is(err, sqlstore.ErrRowMissing):
		return false, rowMissing(err)
	case err != nil:
		return false, err // a conflict too: look again
	}
	h.held = raised
	return false, nil
}

// deposedBy explains a fencing token that this leader did not write. Its error is not nil.
func (h *Holder) deposedBy(cur coder.FenceToken) error {
	if err := CheckToken(h.held, cur); err != nil {
		return err
	}
	// The database lost this leader's first commits, and another leader has a term of that number.
	return fmt.Errorf("%w: in a term of the same number, %d", ErrDeposed, cur.Term)
}
