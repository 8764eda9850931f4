package write

import (
	"bytes"
	"cmp"
	"context"
	"errors"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
)

// TxnCommand is the Command of a client's transaction.
type TxnCommand struct {
	txn    *mvcc.Txn
	bytes  int
	keys   [][]byte
	fresh  [][]byte
	ahead  *Prefetch
	result *mvcc.TxnResult
}

// NewTxnCommand returns the command of t, which has read nothing ahead.
func NewTxnCommand(t *mvcc.Txn) *TxnCommand {
	c := &TxnCommand{txn: t}
	c.survey(t)
	return c
}

// survey collects the keys whose index entries the transaction reads, and the bytes that it may write.
func (c *TxnCommand) survey(t *mvcc.Txn) {
	fresh := t.Creates()
	for _, cmp := range t.Compares {
		switch {
		case len(cmp.End) > 0:
		case fresh != nil && bytes.Equal(cmp.Key, fresh):
			c.fresh = append(c.fresh, cmp.Key)
		default:
			c.keys = append(c.keys, cmp.Key)
		}
	}
	for _, ops := range [][]mvcc.Op{t.Then, t.Else} {
		for _, op := range ops {
			switch {
			case op.Put != nil:
				if fresh == nil || !bytes.Equal(op.Put.Key, fresh) {
					c.keys = append(c.keys, op.Put.Key)
				}
				c.bytes += len(op.Put.Key) + len(op.Put.Value)
			case op.Delete != nil:
				if len(op.Delete.End) == 0 {
					c.keys = append(c.keys, op.Delete.Key)
				}
			case op.Txn != nil:
				c.survey(op.Txn)
			}
		}
	}
}

// Prefetched implements Prefetched.
func (c *TxnCommand) Prefetched() *Prefetch { return c.ahead }

// Evaluate implements Command.
func (c *TxnCommand) Evaluate(ctx context.Context, tx *Tx) error {
	d, err := decide(ctx, tx, c.txn)
	if err != nil {
		return err
	}
	if err := check(ctx, tx, d); err != nil {
		return err
	}
	if c.result, err = execute(ctx, tx, d); err != nil {
		return err
	}
	c.result.Revision = tx.Revision()
	return nil
}

// Txn reads ahead what t, which writes, needs, and executes it as one command. Errors:
// those of Submit, and of the operations of t.
func (p *Pipeline) Txn(ctx context.Context, as auth.Permit, t *mvcc.Txn) (*mvcc.TxnResult, error) {
	for {
		c, err := p.PrefetchTxn(ctx, t)
		if err != nil {
			return nil, mvcc.PublicError(ctx, err)
		}
		err = p.Submit(ctx, as, c)
		p.Release(c.ahead)
		switch {
		case err == nil:
			return c.result, nil
		case !errors.Is(err, errUnprepared):
			return nil, err // c.result may still change
		}
	}
}

// PrefetchTxn returns the command of t with what it reads of ranges. The caller ends it with
// Release, if it returns no error. Errors: mvcc.ErrTooLarge, read.ErrOvertaken, the leader's,
// ctx's, the database's.
func (p *Pipeline) PrefetchTxn(ctx context.Context, t *mvcc.Txn) (*TxnCommand, error) {
	c := NewTxnCommand(t)
	var err error
	c.ahead, err = p.prepare(ctx, t)
	return c, err
}

// Result returns the outcome of the newest evaluation, nil if there is none.
func (c *TxnCommand) Result() *mvcc.TxnResult { return c.result }

// ReadTxn evaluates t, which does not write, at a reading of the visible revision. Its
// result is valid only after now.Check returned nil.
func ReadTxn(ctx context.Context, now *read.Reading, t *mvcc.Txn) (*mvcc.TxnResult, error) {
	c := NewTxnCommand(t)
	err := c.Evaluate(ctx, readOnly(now))
	return c.result, err
}

// decision says which branch a transaction takes, and the transactions nested in that.
type decision struct {
	succeeded bool
	ops       []mvcc.Op
	nested    []*decision // by position in ops; nil for other operations
}

// decide evaluates all compares, including nested ones, on the state before the transaction.
func decide(ctx context.Context, tx *Tx, t *mvcc.Txn) (*decision, error) {
	d := &decision{succeeded: true, ops: t.Then}
	for i := range t.Compares {
		ok, err := holds(ctx, tx, &t.Compares[i])
		if err != nil {
			return nil, err
		}
		if !ok {
			d.succeeded, d.ops = false, t.Else
			break
		}
	}
	d.nested = make([]*decision, len(d.ops))
	for i, op := range d.ops {
		if op.Txn == nil {
			continue
		}
		var err error
		if d.nested[i], err = decide(ctx, tx, op.Txn); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// holds evaluates one compare. All keys of a range must match. Without any key, a compare of
// the value fails, and other targets are compared with 0.
func holds(ctx context.Context, tx *Tx, c *mvcc.Compare) (bool, error) {
	records, err := tx.list(ctx, c.KeyRange, c.Target == mvcc.CompareValue)
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

// check validates the chosen branches on the state before the transaction, so that an invalid
// operation is found before anything is written.
func check(ctx context.Context, tx *Tx, d *decision) error {
	for i, op := range d.ops {
		var err error
		switch {
		case op.Range != nil:
			err = checkRevision(tx, op.Range.Revision)
		case op.Put != nil:
			err = checkPut(ctx, tx, op.Put)
		case op.Txn != nil:
			err = check(ctx, tx, d.nested[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkRevision checks the revision of a range in a transaction. A negative one is compacted;
// outside a transaction it is the current revision.
func checkRevision(tx *Tx, rev int64) error {
	switch {
	case rev == 0:
		return nil
	case rev > tx.rev-1:
		return mvcc.ErrFutureRevision
	case rev < tx.reading().CompactRevision():
		return mvcc.ErrCompacted
	case rev > tx.batch.base:
		return ErrNextBatch
	default:
		return nil
	}
}

func checkPut(ctx context.Context, tx *Tx, p *mvcc.PutRequest) error {
	if p.Lease != 0 && !tx.LeaseOpen(p.Lease) {
		return mvcc.ErrLeaseNotFound
	}
	if p.IgnoreValue || p.IgnoreLease {
		cur, err := tx.Get(ctx, p.Key, false)
		if err != nil {
			return err
		}
		if cur == nil {
			return mvcc.ErrKeyNotFound
		}
	}
	return nil
}

func execute(ctx context.Context, tx *Tx, d *decision) (*mvcc.TxnResult, error) {
	res := &mvcc.TxnResult{Succeeded: d.succeeded, Results: make([]mvcc.OpResult, len(d.ops))}
	for i, op := range d.ops {
		var err error
		r := &res.Results[i]
		switch {
		case op.Range != nil:
			r.Range, err = tx.rangeOp(ctx, op.Range)
		case op.Put != nil:
			r.Put, err = tx.put(ctx, op.Put)
		case op.Delete != nil:
			r.Delete, err = tx.deleteRange(ctx, op.Delete)
		case op.Txn != nil:
			r.Txn, err = execute(ctx, tx, d.nested[i])
		}
		if err != nil {
			return nil, err
		}
	}
	return res, nil
}

func (tx *Tx) put(ctx context.Context, p *mvcc.PutRequest) (*mvcc.PutResult, error) {
	full := p.PrevKV || p.IgnoreValue
	prev, err := tx.Get(ctx, p.Key, full)
	if err != nil {
		return nil, err
	}
	if prev == nil && (p.IgnoreValue || p.IgnoreLease) {
		return nil, tx.batch.p.stale(ctx, p.Key) // checkPut has found it
	}
	rec := &coder.Record{Key: p.Key, Value: p.Value, Lease: p.Lease, CreateRevision: tx.rev, Version: 1}
	if prev != nil {
		rec.CreateRevision, rec.Version = prev.CreateRevision, prev.Version+1
	}
	if p.IgnoreValue {
		rec.Value = prev.Value
	}
	if p.IgnoreLease {
		rec.Lease = prev.Lease
	} else if p.Lease == 0 {
		if rec.Lease, err = tx.batch.p.cfg.Leases.PolicyLease(tx, p.Key); err != nil {
			return nil, err
		}
	}
	tx.write(rec, prev, full)
	res := &mvcc.PutResult{Revision: tx.rev}
	if p.PrevKV {
		res.Prev = prev
	}
	return res, nil
}

func (tx *Tx) deleteRange(ctx context.Context, d *mvcc.DeleteRequest) (*mvcc.DeleteResult, error) {
	records, err := tx.list(ctx, d.KeyRange, d.PrevKV)
	if err != nil {
		return nil, err
	}
	if len(d.End) > 0 {
		if err := tx.loadBases(ctx, records); err != nil {
			return nil, err
		}
	}
	for _, r := range records {
		if tx.local[string(r.Key)] != nil {
			return nil, mvcc.ErrDuplicateKey
		}
		tx.Delete(r, d.PrevKV)
	}
	res := &mvcc.DeleteResult{Deleted: int64(len(records)), Revision: tx.Revision()}
	if d.PrevKV {
		res.Prev = records
	}
	return res, nil
}

// rangeOp answers a range inside a transaction, which sees the changes of earlier operations.
func (tx *Tx) rangeOp(ctx context.Context, q *mvcc.RangeRequest) (*mvcc.RangeResult, error) {
	var res *mvcc.RangeResult
	var err error
	switch {
	case q.Revision > 0:
		res, err = tx.rangePast(ctx, q)
	case tx.ahead.of(q.KeyRange, q.NeedValues()) == nil && len(tx.pendingIn(q.KeyRange)) == 0:
		res, err = tx.reading().Range(ctx, q)
	case q.CountOnly && len(q.End) > 0:
		res = &mvcc.RangeResult{}
		res.Count, err = tx.count(ctx, q.KeyRange)
	case q.Paged() && len(q.End) > 0:
		res, err = tx.rangePage(ctx, q)
	default:
		var records []*coder.Record
		records, err = tx.list(ctx, q.KeyRange, q.NeedValues())
		res = &mvcc.RangeResult{Count: int64(len(records))}
		if !q.CountOnly {
			q.Finish(res, records)
		}
	}
	if err != nil {
		return nil, err
	}
	res.Revision = tx.Revision()
	return res, nil
}

// rangePage answers a range with a small limit, some of whose keys the batch has changed.
func (tx *Tx) rangePage(ctx context.Context, q *mvcc.RangeRequest) (*mvcc.RangeResult, error) {
	records, err := tx.listSome(ctx, q.KeyRange, q.NeedValues(), q.Limit+1)
	if err != nil {
		return nil, err
	}
	res := &mvcc.RangeResult{Count: int64(len(records))}
	q.Finish(res, records)
	if res.More {
		res.Count, err = tx.count(ctx, q.KeyRange)
	}
	return res, err
}

// rangePast answers a range at an old revision, which checkRevision has checked.
func (tx *Tx) rangePast(ctx context.Context, q *mvcc.RangeRequest) (*mvcc.RangeResult, error) {
	if tx.ahead == nil {
		read, err := tx.reading().Past(q.Revision)
		if err != nil {
			return nil, err
		}
		res, err := read.Range(ctx, q)
		return res, cmp.Or(read.Check(ctx), err)
	}
	res := tx.ahead.past[q]
	if res == nil {
		return nil, errUnprepared // it could not be read yet
	}
	own := *res
	return &own, nil
}
