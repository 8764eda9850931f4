package txn

import (
	"context"
	"math"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// Evaluate evaluates t on s, and returns its result and its changes, all of the revision after that of s.
// On an error there are none. Errors: mvcc.ErrCompacted, mvcc.ErrFutureRevision, mvcc.ErrLeaseNotFound,
// mvcc.ErrKeyNotFound, mvcc.ErrDuplicateKey, those of s.
func Evaluate(ctx context.Context, s State, t *mvcc.Txn) (*mvcc.TxnResult, []Change, error) {
	e := &evaluation{state: s}
	b, err := e.choose(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	if err := e.validate(ctx, b); err != nil {
		return nil, nil, err
	}
	res, err := e.execute(ctx, b)
	if err != nil {
		return nil, nil, err
	}
	res.Revision = e.revision()
	return res, e.changes, nil
}

// Range answers q on s, whichever revision q asks for. Errors: those of s.
func Range(ctx context.Context, s State, q *mvcc.RangeRequest) (*mvcc.RangeResult, error) {
	e := &evaluation{state: s}
	return e.readNewest(ctx, q)
}

// evaluation is an evaluation under way.
type evaluation struct {
	state   State
	changes []Change
	changed Overlay // of changes, over state
	answer  mvcc.AnswerSize
}

// branch is the branch that a transaction takes, with those of the transactions nested in it.
type branch struct {
	succeeded bool
	ops       []mvcc.Op
	nested    []*branch // by position in ops; nil for other operations
}

// choose evaluates all compares, including nested ones, on the state before the transaction.
func (e *evaluation) choose(ctx context.Context, t *mvcc.Txn) (*branch, error) {
	b := &branch{succeeded: true, ops: t.Then}
	for i := range t.Compares {
		ok, err := e.holds(ctx, &t.Compares[i])
		if err != nil {
			return nil, err
		}
		if !ok {
			b.succeeded, b.ops = false, t.Else
			break
		}
	}
	for i, op := range b.ops {
		if op.Txn == nil {
			continue
		}
		if b.nested == nil {
			b.nested = make([]*branch, len(b.ops))
		}
		var err error
		if b.nested[i], err = e.choose(ctx, op.Txn); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// holds evaluates one compare. All keys of a range must match. Without any key, a compare of
// the value fails, and other targets are compared with 0.
func (e *evaluation) holds(ctx context.Context, c *mvcc.Compare) (bool, error) {
	records, err := e.list(ctx, c.KeyRange, c.Target == mvcc.CompareValue, 0)
	if err != nil {
		return false, err
	}
	if len(records) == 0 {
		return c.Target != mvcc.CompareValue && c.Matches(&coder.Record{}), nil
	}
	for _, r := range records {
		if !c.Matches(r) {
			return false, nil
		}
	}
	return true, nil
}

// validate validates the operations of a branch on the state before the transaction, so that an invalid
// one is found before anything is changed.
func (e *evaluation) validate(ctx context.Context, b *branch) error {
	for i, op := range b.ops {
		var err error
		switch {
		case op.Range != nil && op.Range.Revision != 0:
			err = e.validateRevision(op.Range.Revision)
		case op.Put != nil:
			err = e.validatePut(ctx, op.Put)
		case op.Txn != nil:
			err = e.validate(ctx, b.nested[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// validateRevision validates the revision of a range. A negative one is compacted if anything is; outside a
// transaction it is the current revision.
func (e *evaluation) validateRevision(rev int64) error {
	switch {
	case rev > e.state.Revision():
		return mvcc.ErrFutureRevision
	case rev < e.state.CompactRevision():
		return mvcc.ErrCompacted
	}
	return nil
}

func (e *evaluation) validatePut(ctx context.Context, p *mvcc.PutRequest) error {
	if p.Lease != 0 && !e.state.LeaseOpen(p.Lease) {
		return mvcc.ErrLeaseNotFound
	}
	if p.IgnoreValue || p.IgnoreLease {
		cur, err := e.state.Get(ctx, p.Key, false)
		if err != nil {
			return err
		}
		if cur == nil {
			return mvcc.ErrKeyNotFound
		}
	}
	return nil
}

func (e *evaluation) execute(ctx context.Context, b *branch) (*mvcc.TxnResult, error) {
	res := &mvcc.TxnResult{Succeeded: b.succeeded, Results: make([]mvcc.OpResult, len(b.ops))}
	for i, op := range b.ops {
		var err error
		r := &res.Results[i]
		switch {
		case op.Range != nil:
			if r.Range, err = e.readRange(ctx, op.Range); err == nil {
				err = e.answer.Add(r.Range.Records...)
			}
		case op.Put != nil:
			r.Put, err = e.put(ctx, op.Put)
		case op.Delete != nil:
			r.Delete, err = e.deleteRange(ctx, op.Delete)
		case op.Txn != nil:
			r.Txn, err = e.execute(ctx, b.nested[i])
		}
		if err != nil {
			return nil, err
		}
	}
	return res, nil
}

// revision returns the revision that a read in the transaction sees: the transaction's, once it has
// changed a key, else that of the state.
func (e *evaluation) revision() int64 {
	if len(e.changes) > 0 {
		return e.state.Revision() + 1
	}
	return e.state.Revision()
}

func (e *evaluation) put(ctx context.Context, p *mvcc.PutRequest) (*mvcc.PutResult, error) {
	full := p.PrevKV || p.IgnoreValue
	prev, err := e.get(ctx, p.Key, full)
	if err != nil {
		return nil, err
	}
	if prev == nil && (p.IgnoreValue || p.IgnoreLease) {
		return nil, mvcc.ErrKeyNotFound // it was deleted since the validation
	}
	rec := &coder.Record{Key: p.Key, Value: p.Value, Lease: p.Lease, CreateRevision: e.state.Revision() + 1, Version: 1}
	if prev != nil {
		rec.CreateRevision, rec.Version = prev.CreateRevision, prev.Version+1
	}
	if p.IgnoreValue {
		rec.Value = prev.Value
	}
	if p.IgnoreLease {
		rec.Lease = prev.Lease
	} else if p.Lease == 0 {
		if rec.Lease, err = e.state.PolicyLease(p.Key); err != nil {
			return nil, err
		}
	}
	e.change(Change{Record: rec, Prev: prev, PrevFull: full})
	res := &mvcc.PutResult{Revision: e.revision()}
	if p.PrevKV && prev != nil {
		res.Prev, err = prev, e.answer.Add(prev)
	}
	return res, err
}

func (e *evaluation) deleteRange(ctx context.Context, d *mvcc.DeleteRequest) (*mvcc.DeleteResult, error) {
	records, err := e.list(ctx, d.KeyRange, d.PrevKV, 0)
	if err != nil {
		return nil, err
	}
	e.changes = slices.Grow(e.changes, len(records))
	for _, r := range records {
		if e.changed.Get(r.Key) != nil {
			return nil, mvcc.ErrDuplicateKey
		}
		e.change(Deletion(r, d.PrevKV))
	}
	res := &mvcc.DeleteResult{Deleted: int64(len(records)), Revision: e.revision()}
	if d.PrevKV {
		res.Prev = records
	}
	return res, e.answer.Add(res.Prev...)
}

// change adds a change of the transaction's revision.
func (e *evaluation) change(c Change) {
	c.Record.ModRevision, c.Record.Sub = e.state.Revision()+1, int32(len(e.changes))
	e.changes = append(e.changes, c)
	e.changed.Add(&c)
}

// readRange answers a range at the revision that it asks for.
func (e *evaluation) readRange(ctx context.Context, q *mvcc.RangeRequest) (*mvcc.RangeResult, error) {
	if q.Revision <= 0 {
		return e.readNewest(ctx, q)
	}
	past, err := e.state.RangeAt(ctx, q)
	if err != nil {
		return nil, err
	}
	res := *past
	res.Revision = e.revision()
	return &res, nil
}

// readNewest answers a range, which sees the changes of earlier operations.
func (e *evaluation) readNewest(ctx context.Context, q *mvcc.RangeRequest) (*mvcc.RangeResult, error) {
	res := &mvcc.RangeResult{Revision: e.revision()}
	var err error
	switch {
	case q.CountOnly && len(q.End) > 0:
		res.Count, err = e.count(ctx, q.KeyRange)
	case q.Limit > 0 && q.Limit < math.MaxInt64 && !q.Filtered() && q.InKeyOrder():
		if err = e.finish(ctx, q, q.Limit+1, res); err == nil && res.More {
			res.Count, err = e.count(ctx, q.KeyRange)
		}
	default:
		err = e.finish(ctx, q, 0, res)
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

// finish reads at most limit records of q into res, 0 for all.
func (e *evaluation) finish(ctx context.Context, q *mvcc.RangeRequest, limit int64, res *mvcc.RangeResult) error {
	records, err := e.list(ctx, q.KeyRange, q.NeedValues(), limit)
	if res.Count = int64(len(records)); err == nil && !q.CountOnly {
		q.Finish(res, records)
	}
	return err
}

// get returns the record of key with the changes so far.
func (e *evaluation) get(ctx context.Context, key []byte, value bool) (*coder.Record, error) {
	if c := e.changed.Get(key); c != nil {
		return c.Live(), nil
	}
	return e.state.Get(ctx, key, value)
}

// list returns the records of kr with the changes so far, in key order; at most limit, 0: all.
func (e *evaluation) list(ctx context.Context, kr mvcc.KeyRange, values bool, limit int64) ([]*coder.Record, error) {
	if len(kr.End) == 0 {
		r, err := e.get(ctx, kr.Key, values)
		if err != nil || r == nil {
			return nil, err
		}
		return []*coder.Record{r}, nil
	}
	if kr.Span().Empty() {
		return nil, nil
	}
	if err := ctx.Err(); err != nil { // a transaction may have thousands of ranges of many keys
		return nil, err
	}
	return e.changed.List(kr, limit, func(limit int64) ([]*coder.Record, error) {
		return e.state.List(ctx, kr, values, limit)
	})
}

// count returns how many keys of kr, a range of several, exist with the changes so far.
func (e *evaluation) count(ctx context.Context, kr mvcc.KeyRange) (int64, error) {
	if kr.Span().Empty() {
		return 0, nil
	}
	n, err := e.state.Count(ctx, kr)
	return n + e.changed.Net(kr), err
}
