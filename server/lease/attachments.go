package lease

import (
	"context"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Attachments reads in the table which keys leases hold. It is also the state of a node that permits
// are checked on, except on the sequencer. Safe for concurrent use.
type Attachments struct {
	store   sqlstore.Store
	users   *auth.Users
	timeout *mvcc.Timeout
}

var _ auth.View = (*Attachments)(nil)

// NewAttachments returns the attachments in store's table. Each call ends after timeout.
func NewAttachments(store sqlstore.Store, users *auth.Users, timeout *mvcc.Timeout) *Attachments {
	return &Attachments{store: store, users: users, timeout: timeout}
}

// AuthRows implements auth.View.
func (a *Attachments) AuthRows() *auth.Rows { return a.users.Rows() }

// MayWriteLease implements auth.View.
func (a *Attachments) MayWriteLease(ctx context.Context, id int64, _ string, see func(key []byte) error) error {
	return a.EachKey(ctx, id, see)
}

// EachKey calls see with each key attached to lease id, in key order, until see returns an error,
// which it returns.
func (a *Attachments) EachKey(ctx context.Context, id int64, see func(key []byte) error) error {
	lo, hi := coder.AttachmentBounds(id)
	return a.each(ctx, lo, hi, see)
}

// EachAttachment calls see with each key attached to any lease, until see returns an error, which
// it returns.
func (a *Attachments) EachAttachment(ctx context.Context, see func(key []byte) error) error {
	lo, hi := coder.AllAttachmentBounds()
	return a.each(ctx, lo, hi, see)
}

func (a *Attachments) each(ctx context.Context, lo, hi []byte, see func(key []byte) error) error {
	ctx, cancel := a.timeout.Bound(ctx)
	defer cancel()
	for key, err := range write.Attached(ctx, a.store, lo, hi, 0) {
		if err == nil {
			err = see(key)
		}
		if err != nil {
			return mvcc.PublicError(ctx, err)
		}
	}
	return nil
}
