package auth

import (
	"context"
	"errors"
)

// ErrNoPermit is the error of a request whose caller passed the zero Permit. It is a
// programming error, and the request was not executed.
var ErrNoPermit = errors.New("auth: the request has no permit")

// Permit checks whether a request may do what it asks for, when it is executed: a read
// once its revision is known, and a write on the sequencer, after all changes of users
// and roles that precede it. The zero Permit refuses.
type Permit struct {
	check func(ctx context.Context, at View) error
}

// View is the state that a permit can check.
type View interface {
	AuthRows() *Rows
	// MayWriteLease returns the first error of see for a key that is attached to lease id,
	// or nil. who names the user that see checks for: the result is cached by user and
	// version of users and roles, so that later calls need not show all keys again.
	MayWriteLease(ctx context.Context, id int64, who string, see func(key []byte) error) error
}

// System is the permit of internal work, such as expiring a lease. A handler must not
// pass it on behalf of a client.
var System = NewPermit(func(context.Context, View) error { return nil })

// NewPermit returns a permit that asks check. The error of check is the request's, and
// nothing of the request is executed then. check may be called more than once.
func NewPermit(check func(ctx context.Context, at View) error) Permit { return Permit{check} }

// PreAuthorized is the permit of a client's request that the guard has authorized before its
// execution. It checks nothing. Work of the node itself passes System instead.
var PreAuthorized = NewPermit(func(context.Context, View) error { return nil })

// Check returns nil if the request may be executed. Errors: ErrNoPermit, those of the
// permit.
func (p Permit) Check(ctx context.Context, at View) error {
	if p.check == nil {
		return ErrNoPermit
	}
	return p.check(ctx, at)
}
