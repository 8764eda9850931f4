package backend

import (
	"bytes"
	"context"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// attachedKeys returns the keys that the table has attached to lease id, in key
// order.
func (b *Backend) attachedKeys(ctx context.Context, id int64) (keys [][]byte, err error) {
	err = b.eachAttached(ctx, id, nil, 0, func(key []byte) error {
		keys = append(keys, key)
		return nil
	})
	return keys, err
}

// eachAttached calls see, in key order, with the keys after the key after (nil: from
// the first on) that the table has attached to lease id, at most limit (0: all), until
// see returns an error, which is the answer.
func (b *Backend) eachAttached(ctx context.Context, id int64, after []byte, limit int, see func(key []byte) error) error {
	lo, hi := coder.AttachmentBounds(id)
	if after != nil {
		lo = append(coder.EncodeAttachmentKey(id, after), 0)
	}
	return b.eachAttachment(ctx, sqlstore.Range{Start: lo, End: hi, Limit: limit, KeysOnly: true}, func(_ int64, key []byte) error { return see(key) })
}

func (b *Backend) eachAttachment(ctx context.Context, r sqlstore.Range, see func(id int64, key []byte) error) error {
	it := b.store.Iter(ctx, r)
	defer func() { _ = it.Close() }()
	for it.Next() {
		id, key, err := coder.DecodeAttachmentKey(it.Key())
		if err != nil {
			return err
		}
		if err := see(id, key); err != nil {
			return err
		}
	}
	return it.Err()
}

// aheadLease holds keys of a lease, and what has changed of the lease's keys since
// they were read.
type aheadLease struct {
	id int64
	// keys are the first ones that the lease holds, in key order; more says that it
	// holds others behind them.
	keys  [][]byte
	more  bool
	bases map[string]indexEntry
	noted map[string]notedKey
}

// note takes in a change: of a key that the lease holds, held or will hold.
func (a *aheadLease) note(s *batchState, c *change) {
	concerns := c.rec.Lease == a.id || c.prev != nil && c.prev.Lease == a.id
	if !concerns && len(a.noted) > 0 {
		_, concerns = a.noted[string(c.rec.Key)]
	}
	if concerns {
		ks := s.keys[string(c.rec.Key)]
		a.noted[string(c.rec.Key)] = notedKey{ks.entry(), ks.rec}
	}
}

// prepareLease reads the keys that lease id holds, after the key after, at most
// limit. The caller ends it with settle.
func (l *leader) prepareLease(ctx context.Context, id int64, after []byte, limit int) (*ahead, error) {
	al := &aheadLease{id: id, noted: make(map[string]notedKey)}
	a := &ahead{lease: al}
	l.aheads.add(a)
	err := l.eachAttached(ctx, id, after, limit+1, func(key []byte) error {
		if al.more = len(al.keys) == limit; !al.more {
			al.keys = append(al.keys, key)
		}
		return nil
	})
	if err == nil {
		al.bases, err = l.entriesOf(ctx, al.keys)
	}
	if err != nil {
		l.settle(a)
		return nil, err
	}
	a.keys = len(al.keys)
	return a, nil
}

// cut leaves n keys, of which the lease holds more.
func (a *ahead) cut(n int) {
	if n < len(a.lease.keys) {
		a.keys, a.lease.keys, a.lease.more = n, a.lease.keys[:n], true
	}
}

// attached returns the records of the prepared keys, and of those attached since,
// that the lease still holds as the commands before have left them, in key order. It
// makes their index entries known to the stage.
func (st *stage) attached(a *aheadLease) []*coder.Record {
	held := make([]*coder.Record, 0, len(a.keys))
	see := func(key []byte, e indexEntry) {
		if st.pending(key) != nil {
			return // below
		}
		if e.live() && e.Lease == a.id {
			st.bases[string(key)] = e
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
	for _, ks := range st.keys {
		if !ks.rec.Tombstone && ks.rec.Lease == a.id {
			held = append(held, ks.rec)
		}
	}
	if len(held) > inOrder {
		slices.SortFunc(held, func(x, y *coder.Record) int { return bytes.Compare(x.Key, y.Key) })
	}
	return held
}
