package write

import (
	"bytes"
	"context"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// EachAttached calls see, in key order, with the keys that the table has attached to lease id:
// those after the key after, or all if that is nil, and at most limit, or all if that is 0. It
// stops at the first error of see, and returns it. Errors: see's, ctx's, the database's.
func EachAttached(ctx context.Context, store sqlstore.Store, id int64, after []byte, limit int,
	see func(key []byte) error) error {
	lo, hi := coder.AttachmentBounds(id)
	if after != nil {
		lo = append(coder.EncodeAttachmentKey(id, after), 0)
	}
	return EachAttachment(ctx, store, sqlstore.Range{Start: lo, End: hi, Limit: limit, KeysOnly: true},
		func(_ int64, key []byte) error { return see(key) })
}

// EachAttachment calls see with the attachments of keys to leases in r. It stops at the first
// error of see, and returns it. Errors: see's, ctx's, the database's.
func EachAttachment(ctx context.Context, store sqlstore.Store, r sqlstore.Range,
	see func(id int64, key []byte) error) error {
	for row, err := range store.Iter(ctx, r) {
		if err != nil {
			return err
		}
		id, key, err := coder.DecodeAttachmentKey(row.Key)
		if err != nil {
			return err
		}
		if err := see(id, key); err != nil {
			return err
		}
	}
	return nil
}

// PrefetchLease reads at most limit keys of lease id, those after the key after. The caller
// must end the preparation with Release. Errors: ctx's, the database's.
func (p *Pipeline) PrefetchLease(ctx context.Context, id int64, after []byte, limit int) (*Prefetch, error) {
	al := &aheadLease{id: id, noted: make(map[string]notedKey)}
	a := &Prefetch{lease: al}
	p.aheads.add(a)
	err := EachAttached(ctx, p.cfg.Store, id, after, limit+1, func(key []byte) error {
		if al.more = len(al.keys) == limit; !al.more {
			al.keys = append(al.keys, key)
		}
		return nil
	})
	if err == nil {
		al.bases, err = p.entriesOf(ctx, al.keys)
	}
	if err != nil {
		p.Release(a)
		return nil, err
	}
	a.keys = len(al.keys)
	return a, nil
}

// Len returns how many keys were read ahead.
func (a *Prefetch) Len() int { return a.keys }

// More reports whether the lease held more keys than PrefetchLease has read.
func (a *Prefetch) More() bool { return a.lease.more }

// Last returns the last key that PrefetchLease has read, nil if there is none.
func (a *Prefetch) Last() []byte {
	if len(a.lease.keys) == 0 {
		return nil
	}
	return a.lease.keys[len(a.lease.keys)-1]
}

// Cut drops the keys after the first n.
func (a *Prefetch) Cut(n int) {
	if n < len(a.lease.keys) {
		a.keys, a.lease.keys, a.lease.more = n, a.lease.keys[:n], true
	}
}

// Attached returns, in key order, the records of the keys that PrefetchLease has read and of
// those attached since, without keys that earlier commands or commits have detached. The
// command may delete them.
func (tx *Tx) Attached(ahead *Prefetch) []*coder.Record {
	a := ahead.lease
	held := make([]*coder.Record, 0, len(a.keys))
	see := func(key []byte, e indexEntry) {
		if tx.pending(key) != nil {
			return // below
		}
		if e.live() && e.Lease == a.id {
			tx.bases[string(key)] = e
			held = append(held, e.Record(key))
		}
	}
	for _, key := range a.keys {
		if _, changed := a.noted[string(key)]; !changed {
			see(key, a.bases[string(key)])
		}
	}
	inOrder := len(held)
	for _, n := range a.noted {
		see(n.rec.Key, n.entry)
	}
	for _, ks := range tx.batch.keys {
		if !ks.rec.Tombstone && ks.rec.Lease == a.id {
			held = append(held, ks.rec)
		}
	}
	if len(held) > inOrder {
		slices.SortFunc(held, func(x, y *coder.Record) int { return bytes.Compare(x.Key, y.Key) })
	}
	return held
}
