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
	for c := range tx.batch.changed.All() {
		if c.Live() == nil || c.Record.Lease != id {
			continue
		}
		if err := see(c.Record.Key); err != nil {
			return err
		}
	}
	decisions := tx.batch.p.decisions
	d, unchecked := decisions.find(decisionKey{id, who}, tx.batch.auth.Version)
	if d != nil {
		for i, key := range unchecked {
			if err := tx.refusal(ctx, id, key, see); err != nil {
				if d.refused == nil {
					decisions.markChecked(d, unchecked[:i])
				}
				return err
			}
		}
		if d.refused == nil {
			decisions.markChecked(d, unchecked)
			return nil
		}
		decisions.forget(d) // other keys may be refused, or none
	}
	return tx.stop(authorizeFirst, errors.New("write: the keys of a lease must be authorized first"))
}

// refusal returns the error of see for key if the key is still attached to lease id. Errors: the database's.
func (tx *Tx) refusal(ctx context.Context, id int64, key []byte, see func(key []byte) error) error {
	refused := see(key)
	if refused == nil {
		return nil
	}
	cur, err := tx.Get(ctx, key, false)
	if err == nil && cur != nil && cur.Lease == id {
		err = refused
	}
	return err
}
