package faultdriver

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// Kind is what a statement does.
type Kind string

// The kinds of statements, by their first word.
const (
	Connect  Kind = "connect"
	Prepare  Kind = "prepare"
	Begin    Kind = "begin"
	Commit   Kind = "commit"
	Rollback Kind = "rollback"
	Exec     Kind = "exec"
	Query    Kind = "query"
)

// ErrLost is a driver's error if a connection breaks during a statement. It does not show
// whether the engine executed the statement.
var ErrLost = fmt.Errorf("faultdriver: connection lost: %w", io.ErrUnexpectedEOF)

// Statement is what a Plan is asked about.
type Statement struct {
	N    int // counted from 1 since the plan was set, over all connections
	Kind Kind
	Text string // of Connect: empty
}

// Fault is what happens to a statement; the zero Fault is nothing.
type Fault struct {
	// Delay passes before the engine gets the statement, unless the context
	// ends first: then it never gets it.
	Delay time.Duration
	// Hang makes the statement wait until its context ends, and fail with the context's
	// error. If After is set, the engine executes it first, otherwise never. If the
	// context cannot end, the statement fails with ErrLost at once.
	Hang bool
	// Then is called when the engine has carried the statement out, before
	// After and Hang.
	Then func()
	// Before is the statement's error; the engine never gets it.
	Before error
	// After is the statement's error if the engine has executed it successfully.
	After error
	// Cut closes the connection when the statement fails, by Before, After or
	// Hang.
	Cut bool
	// Rows is the error that ends the rows of a query after RowsBefore rows. Closing the
	// rows there fails with it as well, as with drivers that read the remaining rows.
	Rows       error
	RowsBefore int
}

// before does what happens to a statement before the engine gets it. If it returns an
// error, the engine never gets the statement.
func (f Fault) before(ctx context.Context) error {
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if f.Hang && f.After == nil {
		return hang(ctx)
	}
	return f.Before
}

func hang(ctx context.Context) error {
	if ctx.Done() == nil {
		return ErrLost
	}
	<-ctx.Done()
	return ctx.Err()
}

// after returns the error of a statement that the engine executed.
func (f Fault) after(ctx context.Context) error {
	if f.Then != nil {
		f.Then()
	}
	if f.Hang {
		return hang(ctx)
	}
	return f.After
}

func kindOf(text string, otherwise Kind) Kind {
	word, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	switch strings.ToUpper(word) {
	case "BEGIN", "START":
		return Begin
	case "COMMIT":
		return Commit
	case "ROLLBACK":
		return Rollback
	}
	return otherwise
}
