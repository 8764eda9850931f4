package write

import (
	"context"
	"errors"
)

// MayWriteLease implements auth.View. It ends the evaluation if a decision must be made first.
func (tx *Tx) MayWriteLease(ctx context.Context, id int64, who string, see func(key []byte) error) error {
	if _, exists := tx.Lease(id); !exists {
		return nil
	}
	for _, c := range tx.batch.changed {
		if c.Live() == nil || c.Record.Lease != id {
			continue
		}
		if err := see(c.Record.Key); err != nil {
			return err
		}
	}
	decisions := tx.batch.p.decisions
	d, unchecked := decisions.find(decisionKey{id, who}, tx.batch.auth.Version)
	if d == nil {
		return tx.undecided()
	}
	if d.refused != nil {
		err, held := tx.stillRefused(ctx, id, d.refused, see)
		if held || err != nil {
			return err
		}
		decisions.forget(d) // other keys may be refused, or none
		return tx.undecided()
	}
	for i, key := range unchecked {
		if err, held := tx.stillRefused(ctx, id, key, see); held || err != nil {
			decisions.markChecked(d, unchecked[:i])
			return err
		}
	}
	decisions.markChecked(d, unchecked)
	return nil
}

func (tx *Tx) undecided() error {
	return tx.stop(authorizeFirst, errors.New("write: the keys of a lease must be authorized first"))
}

// stillRefused reports whether see refuses key and the key is still attached to lease id, and
// returns the error of see. If held is false, the error is the database's.
func (tx *Tx) stillRefused(ctx context.Context, id int64, key []byte,
	see func(key []byte) error) (err error, held bool) {
	refusal := see(key)
	if refusal == nil {
		return nil, false
	}
	cur, err := tx.Get(ctx, key, false)
	if err != nil || cur == nil || cur.Lease != id {
		return err, false
	}
	return refusal, true
}
