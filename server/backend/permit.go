package backend

import (
	"context"
	"maps"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Permit judges whether a request may do what it asks for, at the moment it is
// executed: a read once its frontier is known, and a write on the sequencer, behind
// all changes of users and roles that go before. Its error is the request's, of which
// nothing is executed. It may be asked more than once.
type Permit func(ctx context.Context, at AuthView) error

// AuthView is what a Permit can look at.
type AuthView interface {
	AuthRows() *AuthRows
	// LeaseKeys returns the keys that are attached to a lease, in key order; none if
	// there is no such lease.
	LeaseKeys(ctx context.Context, id int64) ([][]byte, error)
}

var (
	_ AuthView = (*Backend)(nil)
	_ AuthView = (*stage)(nil)
)

type permitKey struct{}

// WithPermit returns ctx for a request that p has to permit. What this node does of
// its own accord, such as to end a lease, needs none.
func WithPermit(ctx context.Context, p Permit) context.Context {
	return context.WithValue(ctx, permitKey{}, p)
}

func permitOf(ctx context.Context) Permit {
	p, _ := ctx.Value(permitKey{}).(Permit)
	return p
}

// permitted asks the permit of a read.
func (b *Backend) permitted(ctx context.Context) error {
	if p := permitOf(ctx); p != nil {
		return p(ctx, b)
	}
	return nil
}

// LeaseKeys returns the keys that the table has attached to lease id, in key order.
func (b *Backend) LeaseKeys(ctx context.Context, id int64) ([][]byte, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	keys, err := b.attachedKeys(ctx, id)
	return keys, b.publicError(ctx, err)
}

// AnyLeasesKeys calls see with every key that the table has attached to a lease,
// until that returns an error, which is the answer.
func (b *Backend) AnyLeasesKeys(ctx context.Context, see func(id int64, key []byte) error) error {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	lo, hi := coder.AllAttachmentBounds()
	it := b.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi, KeysOnly: true})
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
	return b.publicError(ctx, it.Err())
}

// AuthRows returns the users and roles as the commands before have left them.
func (st *stage) AuthRows() *AuthRows { return st.auth }

// LeaseKeys returns the keys attached to lease id as the commands before have left
// them.
func (st *stage) LeaseKeys(ctx context.Context, id int64) ([][]byte, error) {
	if !st.leaseExists(id) {
		return nil, nil
	}
	keys, err := st.b.attachedKeys(ctx, id)
	if err != nil {
		return nil, err
	}
	// Earlier commands of the batch may have attached others.
	candidates := make(map[string]bool, len(keys))
	for _, k := range keys {
		candidates[string(k)] = true
	}
	for k, ks := range st.keys {
		if ks.rec.Lease == id {
			candidates[k] = true
		}
	}
	sorted := toBytes(slices.Sorted(maps.Keys(candidates)))
	if err := st.l.loadIndex(ctx, sorted); err != nil {
		return nil, err
	}
	attached := sorted[:0]
	for _, k := range sorted {
		cur, err := st.current(ctx, k)
		if err != nil {
			return nil, err
		}
		if cur != nil && cur.Lease == id {
			attached = append(attached, k)
		}
	}
	return attached, nil
}
