package backend

import (
	"context"

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
	// MayWriteLease returns the error of see for a key that is attached to lease id,
	// nil if there is none. who names the user that see judges for: what was found for
	// one version of users and roles is remembered by it, and not all keys need be
	// shown again.
	MayWriteLease(ctx context.Context, id int64, who string, see func(key []byte) error) error
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

// MayWriteLease implements AuthView.
func (b *Backend) MayWriteLease(ctx context.Context, id int64, _ string, see func(key []byte) error) error {
	return b.EachLeaseKey(ctx, id, see)
}

// EachLeaseKey calls see with the keys that the table has attached to lease id, in key
// order, until it returns an error, which is the answer.
func (b *Backend) EachLeaseKey(ctx context.Context, id int64, see func(key []byte) error) error {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	return b.publicError(ctx, b.eachAttached(ctx, id, nil, 0, see))
}

// AnyLeasesKeys calls see with every key that the table has attached to a lease,
// until that returns an error, which is the answer.
func (b *Backend) AnyLeasesKeys(ctx context.Context, see func(id int64, key []byte) error) error {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	lo, hi := coder.AllAttachmentBounds()
	return b.publicError(ctx, b.eachAttachment(ctx, sqlstore.Range{Start: lo, End: hi, KeysOnly: true}, see))
}

// AuthRows returns the users and roles as the commands before have left them.
func (st *stage) AuthRows() *AuthRows { return st.auth }
