package write

import (
	"bytes"
	"context"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/txn"
)

// TxnCommand is the Command of a client's transaction.
type TxnCommand struct {
	txn      *mvcc.Txn
	bytes    int      // of the keys and values that it names
	keys     [][]byte // whose index rows the evaluation reads
	creates  [][]byte // other keys, which it writes only if they do not exist
	prefetch *Prefetch
	result   *mvcc.TxnResult
}

// NewTxnCommand returns the command of t without a prefetch.
func NewTxnCommand(t *mvcc.Txn) *TxnCommand {
	c := &TxnCommand{txn: t}
	c.addKeys(t)
	return c
}

// addKeys collects the keys of t, and counts its bytes.
func (c *TxnCommand) addKeys(t *mvcc.Txn) {
	created := t.Creates()
	if created != nil {
		c.creates = append(c.creates, created)
	}
	add := func(kr mvcc.KeyRange) {
		c.bytes += len(kr.Key) + len(kr.End)
		if len(kr.End) == 0 && !bytes.Equal(kr.Key, created) {
			c.keys = append(c.keys, kr.Key)
		}
	}
	for _, cmp := range t.Compares {
		add(cmp.KeyRange)
		c.bytes += len(cmp.Value)
	}
	for _, ops := range [][]mvcc.Op{t.Then, t.Else} {
		for _, op := range ops {
			switch {
			case op.Range != nil && op.Range.Revision > 0:
				c.bytes += len(op.Range.Key) + len(op.Range.End)
			case op.Range != nil:
				add(op.Range.KeyRange)
			case op.Put != nil:
				add(mvcc.KeyRange{Key: op.Put.Key})
				c.bytes += len(op.Put.Value)
			case op.Delete != nil:
				add(op.Delete.KeyRange)
			case op.Txn != nil:
				c.addKeys(op.Txn)
			}
		}
	}
}

// Prefetched returns the prefetch, nil if there is none.
func (c *TxnCommand) Prefetched() *Prefetch { return c.prefetch }

// Evaluate implements Command.
func (c *TxnCommand) Evaluate(ctx context.Context, tx *Tx) (err error) {
	c.result, tx.changes, err = txn.Evaluate(ctx, tx, c.txn)
	return err
}

// Result returns the outcome of the newest evaluation, nil if there is none.
func (c *TxnCommand) Result() *mvcc.TxnResult { return c.result }

// Txn prefetches the ranges of t, which writes, if as permits it, and executes it as one command. Errors:
// those of Submit, and of the operations of t.
func (p *Pipeline) Txn(ctx context.Context, as auth.Permit, t *mvcc.Txn) (*mvcc.TxnResult, error) {
	for attempt := 0; ; attempt++ {
		if refused := as.Check(ctx, prefetchView{p.cfg.Leader.AuthRows()}); refused != nil {
			// The sequencer decides, because it has the newest users and roles.
			res := p.submit(ctx, as, Func(func(_ context.Context, tx *Tx) error { return tx.stop(prefetchFirst, refused) }))
			if res.outcome != prefetchFirst {
				return nil, res.err
			}
			continue
		}
		c, err := p.PrefetchTxn(ctx, t)
		if err != nil {
			return nil, mvcc.PublicError(ctx, err)
		}
		if c.prefetch != nil {
			c.prefetch.attempt = min(attempt, rangesShare)
		}
		res := p.submit(ctx, as, c)
		p.Release(c.prefetch)
		switch {
		case res.err == nil:
			return c.result, nil
		case res.outcome != prefetchFirst:
			return nil, res.err // c.result may still change
		}
	}
}
