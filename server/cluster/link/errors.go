package link

import "errors"

// Errors of calls to a member, in addition to those of the context and the connection.
var (
	// ErrRefused: the operating system at every address of the member refused the
	// last connection tried: no process listens there.
	ErrRefused = errors.New("no process listens at the peer's addresses")
	// ErrOtherNode: another member, or a member of another cluster, listens at the
	// member's address.
	ErrOtherNode = errors.New("another node listens at the peer's address")
	// ErrClosed: the pool was closed.
	ErrClosed = errors.New("link: pool closed")
)
