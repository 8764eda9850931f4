package write

import (
	"context"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
)

// A client that attaches a key to a lease, or revokes a lease, must be permitted to write all
// keys of the lease. The sequencer must not read them for every such request. So the decision is
// made once, in the goroutine of the request, and cached. Commits record which keys are
// attached later, and only those are checked again.

// authorize makes the decisions that as needs, and returns how many were reserved for them.
// The caller gives them back when the request has been executed, or is not going to be.
func (p *Pipeline) authorize(ctx context.Context, as auth.Permit) (reserved int, err error) {
	v := &decidingView{p: p, rows: p.cfg.Leader.AuthRows()}
	_ = as.Check(ctx, v) // the sequencer decides later whether as permits the request
	return v.reserved, v.err
}

// decidingView is the auth.View with which a permit makes decisions in the goroutine of its
// request.
type decidingView struct {
	p        *Pipeline
	rows     *auth.Rows // those that the permit decides by, although newer ones may be in force already
	reserved int
	err      error // why a decision could not be made
}

func (v *decidingView) AuthRows() *auth.Rows { return v.rows }

func (v *decidingView) MayWriteLease(ctx context.Context, id int64, who string, see func(key []byte) error) error {
	if v.err == nil {
		v.reserved++
		v.p.decisions.reserve(1)
		v.err = v.p.decide(ctx, decisionKey{id, who}, v.rows.Version, see)
	}
	return v.err
}

// prefetchView is the auth.View with which a permit is checked before a prefetch. It reads nothing: the sequencer has
// the keys of leases checked.
type prefetchView struct{ rows *auth.Rows }

func (v prefetchView) AuthRows() *auth.Rows { return v.rows }

func (prefetchView) MayWriteLease(context.Context, int64, string, func([]byte) error) error {
	return nil
}

// decide makes a decision for a version of users and roles, by calling see with all keys of the
// lease. Concurrent callers share one decision. Errors: ctx's, the database's.
func (p *Pipeline) decide(ctx context.Context, key decisionKey, version int64, see func(key []byte) error) error {
	d, first := p.decisions.findOrAdd(key, version)
	if !first {
		select {
		case <-d.decided:
		case <-ctx.Done():
			return ctx.Err()
		}
		if d.left {
			return p.decide(ctx, key, version, see)
		}
		return d.err
	}
	lo, hi := coder.AttachmentBounds(key.lease)
	for attached, err := range Attached(ctx, p.cfg.Store, lo, hi, 0) {
		if d.err = err; err == nil && see(attached) != nil {
			d.refused = attached
			break
		}
	}
	if d.err != nil {
		d.left = ctx.Err() != nil
		p.decisions.forget(d)
	}
	close(d.decided)
	return d.err
}
