package backend

import (
	"bytes"
	"cmp"
	"context"

	"github.com/sqlbrain/sqlbrain/coder"
)

// txnCommand runs a client's transaction.
type txnCommand struct {
	txn    *Txn
	bytes  int
	keys   [][]byte
	fresh  [][]byte
	ahead  *ahead
	result *TxnResult
}

func newTxnCommand(t *Txn) *txnCommand {
	c := &txnCommand{txn: t}
	c.survey(t)
	return c
}

// writes reports whether t has to pass the sequencer.
func (t *Txn) writes() bool {
	return t.any(func(op Op) bool { return op.Put != nil || op.Delete != nil })
}

// puts reports whether t may put a key, which takes space.
func (t *Txn) puts() bool {
	return t.any(func(op Op) bool { return op.Put != nil })
}

func (t *Txn) any(is func(Op) bool) bool {
	for _, ops := range [][]Op{t.Then, t.Else} {
		for _, op := range ops {
			if is(op) || op.Txn != nil && op.Txn.any(is) {
				return true
			}
		}
	}
	return false
}

// creates returns the key that t puts if it does not exist, and whose condition is
// t's only one; nil if t is of another kind.
func (t *Txn) creates() []byte {
	if len(t.Compares) != 1 || !t.Compares[0].absent() {
		return nil
	}
	key := t.Compares[0].Key
	for _, op := range t.Then {
		if op.Put != nil && bytes.Equal(op.Put.Key, key) {
			return key
		}
	}
	return nil
}

// absent reports whether c holds only for a single key that does not exist.
func (c *Compare) absent() bool {
	return len(c.End) == 0 && c.Result == CompareEqual && c.Int == 0 &&
		(c.Target == CompareVersion || c.Target == CompareCreate || c.Target == CompareMod)
}

// survey collects the keys the transaction touches and the bytes it may write.
func (c *txnCommand) survey(t *Txn) {
	fresh := t.creates()
	for _, cmp := range t.Compares {
		switch {
		case len(cmp.End) > 0:
		case fresh != nil && bytes.Equal(cmp.Key, fresh):
			c.fresh = append(c.fresh, cmp.Key)
		default:
			c.keys = append(c.keys, cmp.Key)
		}
	}
	for _, ops := range [][]Op{t.Then, t.Else} {
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

func (c *txnCommand) touches() (keys, fresh [][]byte) { return c.keys, c.fresh }
func (c *txnCommand) size() int                       { return c.bytes }
func (c *txnCommand) prepared() *ahead                { return c.ahead }

func (c *txnCommand) evaluate(ctx context.Context, st *stage) error {
	d, err := decide(ctx, st, c.txn)
	if err != nil {
		return err
	}
	if err := check(ctx, st, d); err != nil {
		return err
	}
	c.result, err = execute(ctx, st, d)
	if st.readOnly {
		// Compaction may have overtaken a revision read, in or without error.
		if _, merr := st.b.mark(ctx); merr != nil {
			return merr
		}
		if raced := check(ctx, st, d); raced != nil {
			return raced
		}
	}
	if err != nil {
		return err
	}
	c.result.Revision = st.revision()
	return nil
}

// decision says which way a transaction goes, and the transactions in it.
type decision struct {
	succeeded bool
	ops       []Op
	nested    []*decision // by position in ops; nil where the op is no transaction
}

// decide judges all compares, nested ones too, on the state before the
// transaction.
func decide(ctx context.Context, st *stage, t *Txn) (*decision, error) {
	d := &decision{succeeded: true, ops: t.Then}
	for i := range t.Compares {
		ok, err := holds(ctx, st, &t.Compares[i])
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
		if d.nested[i], err = decide(ctx, st, op.Txn); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// holds judges one compare: of a range, every key must match; of no key at all,
// a value never matches and everything else is compared with 0.
func holds(ctx context.Context, st *stage, c *Compare) (bool, error) {
	records, err := st.list(ctx, c.KeyRange, c.Target == CompareValue)
	if err != nil {
		return false, err
	}
	if len(records) == 0 {
		return c.Target != CompareValue && c.matches(&coder.Record{}), nil
	}
	for _, r := range records {
		if !c.matches(r) {
			return false, nil
		}
	}
	return true, nil
}

func (c *Compare) matches(r *coder.Record) bool {
	var n int
	switch c.Target {
	case CompareVersion:
		n = cmp.Compare(r.Version, c.Int)
	case CompareCreate:
		n = cmp.Compare(r.CreateRevision, c.Int)
	case CompareMod:
		n = cmp.Compare(r.ModRevision, c.Int)
	case CompareLease:
		n = cmp.Compare(r.Lease, c.Int)
	case CompareValue:
		n = bytes.Compare(r.Value, c.Value)
	}
	switch c.Result {
	case CompareEqual:
		return n == 0
	case CompareNotEqual:
		return n != 0
	case CompareGreater:
		return n > 0
	default:
		return n < 0
	}
}

// check validates the chosen path on the state before the transaction, so that
// nothing was written when an operation turns out to be wrong.
func check(ctx context.Context, st *stage, d *decision) error {
	for i, op := range d.ops {
		var err error
		switch {
		case op.Range != nil:
			err = checkRevision(st, op.Range.Revision)
		case op.Put != nil:
			err = checkPut(ctx, st, op.Put)
		case op.Txn != nil:
			err = check(ctx, st, d.nested[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkRevision judges the revision of a range in a transaction. Unlike a range
// of its own, a negative one is not the current revision but compacted.
func checkRevision(st *stage, rev int64) error {
	switch {
	case rev == 0:
		return nil
	case rev > st.rev-1:
		return ErrFutureRevision
	case rev < st.b.compacted.Load():
		return ErrCompacted
	case rev > st.base:
		return errNextBatch
	default:
		return nil
	}
}

func checkPut(ctx context.Context, st *stage, p *PutRequest) error {
	if p.Lease != 0 && !st.leaseOpen(p.Lease) {
		return ErrLeaseNotFound
	}
	if p.IgnoreValue || p.IgnoreLease {
		cur, err := st.current(ctx, p.Key)
		if err != nil {
			return err
		}
		if cur == nil {
			return ErrKeyNotFound
		}
	}
	return nil
}

func execute(ctx context.Context, st *stage, d *decision) (*TxnResult, error) {
	res := &TxnResult{Succeeded: d.succeeded, Results: make([]OpResult, len(d.ops))}
	for i, op := range d.ops {
		var err error
		r := &res.Results[i]
		switch {
		case op.Range != nil:
			r.Range, err = st.rangeOp(ctx, op.Range)
		case op.Put != nil:
			r.Put, err = st.put(ctx, op.Put)
		case op.Delete != nil:
			r.Delete, err = st.deleteRange(ctx, op.Delete)
		case op.Txn != nil:
			r.Txn, err = execute(ctx, st, d.nested[i])
		}
		if err != nil {
			return nil, err
		}
	}
	return res, nil
}

func (st *stage) put(ctx context.Context, p *PutRequest) (*PutResult, error) {
	full := p.PrevKV || p.IgnoreValue
	get := st.current
	if full {
		get = st.currentFull
	}
	prev, err := get(ctx, p.Key)
	if err != nil {
		return nil, err
	}
	rec := &coder.Record{Key: p.Key, Value: p.Value, Lease: p.Lease, CreateRevision: st.rev, Version: 1}
	if prev != nil {
		rec.CreateRevision, rec.Version = prev.CreateRevision, prev.Version+1
	}
	if p.IgnoreValue {
		rec.Value = prev.Value
	}
	if p.IgnoreLease {
		rec.Lease = prev.Lease
	} else if p.Lease == 0 {
		if rec.Lease, err = st.policyLease(p.Key); err != nil {
			return nil, err
		}
	}
	st.write(rec, prev, full)
	res := &PutResult{Revision: st.rev}
	if p.PrevKV {
		res.Prev = prev
	}
	return res, nil
}

func (st *stage) deleteRange(ctx context.Context, d *DeleteRequest) (*DeleteResult, error) {
	records, err := st.list(ctx, d.KeyRange, d.PrevKV)
	if err != nil {
		return nil, err
	}
	if len(d.End) > 0 {
		if err := st.loadBases(ctx, records); err != nil {
			return nil, err
		}
	}
	for _, r := range records {
		st.delete(r, d.PrevKV)
	}
	res := &DeleteResult{Deleted: int64(len(records)), Revision: st.revision()}
	if d.PrevKV {
		res.Prev = records
	}
	return res, nil
}

// rangeOp answers a range inside a transaction: it sees what the operations
// before it wrote.
func (st *stage) rangeOp(ctx context.Context, q *RangeRequest) (*RangeResult, error) {
	var res *RangeResult
	var err error
	switch {
	case q.Revision > 0:
		res, err = st.rangePast(ctx, q)
	case st.ahead.of(q.KeyRange, q.needValues()) == nil && len(st.pendingIn(q.KeyRange)) == 0:
		res, err = st.b.reader.at(st.base).rangeOf(ctx, q)
	case q.CountOnly && len(q.End) > 0:
		res = &RangeResult{}
		res.Count, err = st.count(ctx, q.KeyRange)
	case q.piecemeal() && len(q.End) > 0:
		res, err = st.rangePage(ctx, q)
	default:
		var records []*coder.Record
		records, err = st.list(ctx, q.KeyRange, q.needValues())
		res = &RangeResult{Count: int64(len(records))}
		if !q.CountOnly {
			q.finish(res, records)
		}
	}
	if err != nil {
		return nil, err
	}
	res.Revision = st.revision()
	return res, nil
}

// rangePage answers a range of a few keys, of which the batch has changed some.
func (st *stage) rangePage(ctx context.Context, q *RangeRequest) (*RangeResult, error) {
	records, err := st.listSome(ctx, q.KeyRange, q.needValues(), q.Limit+1)
	if err != nil {
		return nil, err
	}
	res := &RangeResult{Count: int64(len(records))}
	q.finish(res, records)
	if res.More {
		res.Count, err = st.count(ctx, q.KeyRange)
	}
	return res, err
}

// rangePast answers a range at an old revision that can be read.
func (st *stage) rangePast(ctx context.Context, q *RangeRequest) (*RangeResult, error) {
	if st.ahead == nil {
		return st.b.reader.at(q.Revision).rangeOf(ctx, q)
	}
	res := st.ahead.past[q]
	if res == nil {
		return nil, errUnprepared // it could not be read yet
	}
	own := *res
	return &own, nil
}
