package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
)

// failure says what an engine's error means for the statement that met it.
type failure uint8

const (
	// failureOther: the engine refused the statement. Nothing of it was done.
	failureOther failure = iota
	// failureConflict: a row did not hold what it should.
	failureConflict
	// failureRetry: the transaction lost against another one and was undone;
	// repeating it may succeed at once.
	failureRetry
	// failureUnavailable: the engine does not serve now. Nothing was done.
	failureUnavailable
	// failureReadOnly: the engine takes no writes, or not any more. Nothing was
	// done.
	failureReadOnly
	// failureTooLarge: it does not fit the engine. Nothing was done.
	failureTooLarge
	// failureNotSent: the statement did not reach the engine.
	failureNotSent
	// failureLost: the connection broke or the context ended, before or after
	// the engine did it.
	failureLost
	// failureUnknown: the engine answered with an error that does not tell
	// whether a commit under way took effect.
	failureUnknown
)

var failureNames = [...]string{"other", "conflict", "retry", "unavailable", "read_only", "too_large", "not_sent", "lost", "unknown"}

func (f failure) String() string { return failureNames[f] }

// classifyCommon classifies what all drivers have in common.
func classifyCommon(err error) (failure, bool) {
	var netErr net.Error
	switch {
	case err == nil:
		return failureOther, true
	case errors.Is(err, driver.ErrBadConn):
		// By the contract of database/sql: only if the engine did nothing.
		return failureNotSent, true
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, sql.ErrConnDone), errors.As(err, &netErr):
		return failureLost, true
	}
	return failureOther, false
}

// harmless reports whether err, which the driver returned for a statement, shows
// that the statement was never executed.
func harmless(d dialect, err error) bool {
	var p *prepareError
	return errors.As(err, &p) || d.classify(err) == failureNotSent
}

// definite turns the error of a statement that cannot have committed anything
// into what the store returns.
func definite(ctx context.Context, d dialect, err error) error {
	if err == nil {
		return nil
	}
	var c *Conflict
	if errors.As(err, &c) {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		if errors.Is(err, cause) {
			return err
		}
		return fmt.Errorf("%w: %w", cause, err)
	}
	switch d.classify(err) {
	case failureTooLarge:
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case failureUnavailable, failureReadOnly, failureRetry, failureNotSent, failureLost, failureUnknown:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return fmt.Errorf("sqlstore: %w", err)
}

// uncertain is the error of a commit that may or may not have taken effect.
func uncertain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w: %w", ErrUncertain, cause, err)
	}
	return fmt.Errorf("%w: %w", ErrUncertain, err)
}
