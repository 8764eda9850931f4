package fence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/coalesce"
	"github.com/sqlbrain/sqlbrain/server/steptrace"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// watchInterval is the longest time between reads of the fence row by a leader without requests.
const watchInterval = time.Second

// Authority lets a leader check that it still leads: that no other process can have
// acknowledged anything. Use NewAuthority, and Close it. It is safe for concurrent use.
type Authority struct {
	cfg    AuthorityConfig
	checks *coalesce.Group[struct{}]
	next   *time.Timer // of Watch
}

// AuthorityConfig says how to read the fence row. All fields but Trace are required.
type AuthorityConfig struct {
	Store sqlstore.Store
	Log   *slog.Logger
	// Lease makes a check unnecessary while it is valid. Each check extends it.
	Lease *ReadLease
	// Seen has what this leader wrote, and may have what a later leader did.
	Seen *Seen
	// Term is this leader's.
	Term int64
	// Await returns once this leader shows a revision.
	Await func(ctx context.Context, revision int64) error
	// End ends the leadership because of cause, ErrDeposed or ErrDataLost. It returns the
	// error of requests.
	End   func(cause error) error
	Trace *steptrace.Trace // nil: steps are not recorded
}

// NewAuthority returns the authority of a leader that has taken the fence row.
func NewAuthority(cfg AuthorityConfig) *Authority {
	a := &Authority{cfg: cfg, next: time.NewTimer(watchInterval)}
	a.checks = coalesce.New(ResolveTimeout, a.check)
	return a
}

// Close ends the check under way. Afterwards VerifyLeader returns reason, unless the read lease is
// valid.
func (a *Authority) Close(reason error) { a.next.Stop(); a.checks.Close(reason) }

// VerifyLeader returns nil if no other leader can have acknowledged anything before the call.
// It reads the fence row unless the read lease is valid; many callers share one check.
// Errors: what End returned, or the database's, after which the leader may still lead.
func (a *Authority) VerifyLeader(ctx context.Context) error {
	if a.cfg.Lease.Valid() {
		return nil
	}
	_, err := a.checks.Get(ctx)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil { // ResolveTimeout
		err = fmt.Errorf("%w: %w", sqlstore.ErrUnavailable, err)
	}
	return err
}

// acknowledged returns the newest value of the fence row that this process has seen, in this leader's term: a later
// term deposes this leader, also if another component of the process has seen it first.
func (a *Authority) acknowledged() coder.FenceToken {
	token := a.cfg.Seen.Token()
	token.Term = a.cfg.Term
	return token
}

// check reads the fence row and compares it with what was acknowledged.
func (a *Authority) check(ctx context.Context) (struct{}, error) {
	acknowledged := a.acknowledged()
	started := a.cfg.Lease.Now()
	step := steptrace.Step{Kind: steptrace.Verify, Began: a.cfg.Trace.Now()}
	cur, _, err := readToken(ctx, a.cfg.Store)
	if errors.Is(err, ErrDataLost) {
		return struct{}{}, a.cfg.End(err)
	}
	if err != nil {
		return struct{}{}, fmt.Errorf("verifying the leadership: %w", err)
	}
	step.Token = cur
	if err := CheckToken(acknowledged, cur); err != nil {
		a.cfg.Trace.Record(step)
		return struct{}{}, a.cfg.End(err)
	}
	// A commit of this leader may be in the table before the leader has its answer. Followers
	// may have read it there already, so this leader must show it before it answers.
	if err := a.cfg.Await(ctx, cur.Revision); err != nil {
		return struct{}{}, err
	}
	a.cfg.Trace.Record(step) // before the lease is extended, so that no read within it comes first
	a.cfg.Lease.Extend(started)
	return struct{}{}, nil
}

// Watch reads the data loss marker and the fence row, in one statement, a second after it or a statement of another
// component did, until ctx ends. So a leader without requests notices that it leads no more. It does not extend the
// read lease.
func (a *Authority) Watch(ctx context.Context) {
	a.watched()
	defer a.next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.next.C:
		}
		err := a.watch(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrDeposed) && !errors.Is(err, ErrDataLost) {
			a.cfg.Log.Warn("cannot read the fence row", "error", err)
		}
		a.watched()
	}
}

// watched postpones the next reading of Watch.
func (a *Authority) watched() { a.next.Reset(watchInterval) }

func (a *Authority) watch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ResolveTimeout)
	defer cancel()
	acknowledged := a.acknowledged()
	rows, err := a.cfg.Store.MultiGet(ctx, WatchedKeys())
	if err != nil {
		return err
	}
	err = checkWatched(acknowledged, rows)
	switch {
	case errors.Is(err, ErrDataLost):
		return a.cfg.End(err)
	case err != nil: // the checks decide, one at a time
		_, err = a.checks.Get(ctx)
	}
	return err
}

// PiggybackRead returns the keys of the rows that Watch reads, to add to a query that is about to be sent, and a
// callback for their values; it saves a query of Watch. Neither blocks.
func (a *Authority) PiggybackRead() (keys [][]byte, found func(rows [][]byte)) {
	acknowledged := a.acknowledged()
	return WatchedKeys(), func(rows [][]byte) {
		if checkWatched(acknowledged, rows) == nil {
			a.watched()
		} else {
			a.next.Reset(0) // Watch finds the same
		}
	}
}
