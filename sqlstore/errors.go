package sqlstore

import (
	"errors"
	"fmt"
)

// Errors of reads and commits.
var (
	// ErrKeyNotFound: Get found no such row.
	ErrKeyNotFound = errors.New("sqlstore: key not found")
	// ErrUncertain: the connection broke, or the context ended, while a commit
	// was under way. It may have taken effect, or may yet.
	ErrUncertain = errors.New("sqlstore: outcome of the commit is unknown")
	// ErrRowMissing: a row that a compare-and-swap was to replace is gone.
	ErrRowMissing = errors.New("sqlstore: a row to be replaced is missing")
	// ErrTooLarge: a row or a batch does not fit the engine; nothing was sent.
	ErrTooLarge = errors.New("sqlstore: row too large for the database")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("sqlstore: closed")
	// ErrUnavailable: the engine cannot be reached or refuses to serve now.
	// Trying again later may succeed.
	ErrUnavailable = errors.New("sqlstore: database unavailable")
	// ErrFull: the engine has no space left for what was to be written. Nothing was written.
	ErrFull = fmt.Errorf("%w: no space is left", ErrUnavailable)
	// ErrDenied: the engine refuses the login, or the user lacks a right. Nothing was done.
	ErrDenied = fmt.Errorf("%w: access is denied", ErrUnavailable)
	// ErrUnfit: the database is reachable, but it cannot hold the data as it is.
	// The message says what to change.
	ErrUnfit = errors.New("sqlstore: database is not usable as it is")
	// ErrInUse: another process, or another store of this process, has the SQLite
	// file. The message names both.
	ErrInUse = errors.New("sqlstore: the SQLite file is in use by another sqlbrain")
)

// Conflict is the error of a batch that found another value than it expected.
type Conflict struct {
	// Key is the row that did not match; nil if the engine does not report it.
	Key []byte
	// Value is what that row holds now; nil if the row is missing or not known.
	Value []byte
}

func (c *Conflict) Error() string { return fmt.Sprintf("sqlstore: conflict on row %x", c.Key) }

// IsConflict reports whether err is a *Conflict.
func IsConflict(err error) bool {
	_, ok := errors.AsType[*Conflict](err)
	return ok
}
