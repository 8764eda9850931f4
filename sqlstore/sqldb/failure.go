package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Failure is what an engine's error means for the statement that failed.
type Failure uint8

const (
	// FailureOther: the engine refused the statement. Nothing of it was done.
	FailureOther Failure = iota
	// FailureConflict: a row did not hold the expected value.
	FailureConflict
	// FailureRetry: the transaction lost against another one and was undone;
	// repeating it may succeed at once.
	FailureRetry
	// FailureUnavailable: the engine does not serve now. Nothing was done.
	FailureUnavailable
	// FailureDenied: the engine refuses the login, or the user lacks a right. Nothing was done.
	FailureDenied
	// FailureFull: the engine has no space left. Nothing was done.
	FailureFull
	// FailureReadOnly: the engine does not accept writes, or no longer. Nothing was
	// done.
	FailureReadOnly
	// FailureTooLarge: a row or a batch does not fit the engine. Nothing was done.
	FailureTooLarge
	// FailureNotSent: the statement did not reach the engine.
	FailureNotSent
	// FailureLost: the connection broke or the context ended, before or after
	// the engine did it.
	FailureLost
	// FailureUnknown: the engine's error does not show whether a commit under way took
	// effect.
	FailureUnknown
)

var failureNames = [...]string{"other", "conflict", "retry", "unavailable", "denied", "full", "read_only", "too_large",
	"not_sent", "lost", "unknown"}

func (f Failure) String() string { return failureNames[f] }

// Classify says what an error of e's driver means.
func Classify(e Engine, err error) Failure {
	if p, ok := errors.AsType[*prepareError](err); ok {
		err = p.err
	}
	var netErr net.Error
	switch {
	case err == nil:
		return FailureOther
	case errors.Is(err, driver.ErrBadConn):
		// By the contract of database/sql: only if the engine did nothing.
		return FailureNotSent
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, sql.ErrConnDone), errors.As(err, &netErr):
		return FailureLost
	}
	return e.Classify(err)
}

// Harmless reports whether err, which the driver returned for a statement, shows
// that the statement was never executed.
func Harmless(e Engine, err error) bool {
	var p *prepareError
	return errors.As(err, &p) || Classify(e, err) == FailureNotSent
}

// RolledBack returns the store's error for err, the error of a statement that cannot have
// committed anything.
func RolledBack(ctx context.Context, e Engine, err error) error {
	if err == nil {
		return nil
	}
	if sqlstore.IsConflict(err) {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		if errors.Is(err, cause) {
			return err
		}
		return fmt.Errorf("%w: %w", cause, err)
	}
	switch Classify(e, err) {
	case FailureTooLarge:
		return fmt.Errorf("%w: %w", sqlstore.ErrTooLarge, err)
	case FailureFull:
		return fmt.Errorf("%w: %w", sqlstore.ErrFull, err)
	case FailureDenied:
		return fmt.Errorf("%w: %w", sqlstore.ErrDenied, err)
	case FailureUnavailable, FailureReadOnly, FailureRetry, FailureNotSent, FailureLost, FailureUnknown:
		return fmt.Errorf("%w: %w", sqlstore.ErrUnavailable, err)
	}
	return fmt.Errorf("sqldb: %w", err)
}

// Uncertain returns the store's error for err, the error of a commit that may have taken
// effect.
func Uncertain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w: %w", sqlstore.ErrUncertain, cause, err)
	}
	return fmt.Errorf("%w: %w", sqlstore.ErrUncertain, err)
}
