package faultdriver

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
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

// ErrUnreachable is what dialling answers while the engine is unreachable.
var ErrUnreachable = fmt.Errorf("faultdriver: connection refused: %w", io.EOF)

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

// Plan decides what happens to a statement. It is called by the goroutine that
// sends it, one at a time, and must not use the database.
type Plan func(Statement) Fault

// Injector injects faults into the connections of the connectors it wraps. Safe
// for concurrent use.
type Injector struct {
	mu          sync.Mutex
	plan        Plan
	n           int
	seen        []Statement
	unreachable bool
	conns       map[*conn]struct{}
}

// New returns an injector that injects nothing yet.
func New() *Injector { return &Injector{conns: map[*conn]struct{}{}} }

// Set replaces the plan; nil injects nothing. Statements are counted anew.
func (i *Injector) Set(p Plan) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.plan, i.n, i.seen = p, 0, nil
}

// Seen returns the statements sent since the plan was set.
func (i *Injector) Seen() []Statement {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.seen)
}

// SetUnreachable cuts the engine off, or makes it reachable again: while it is
// cut off dialling fails with ErrUnreachable, and every connection that is used
// breaks, with ErrLost, before the engine gets the statement.
func (i *Injector) SetUnreachable(yes bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.unreachable = yes
}

// Conns returns the number of open connections.
func (i *Injector) Conns() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.conns)
}

// Wrap returns a connector whose connections the plan governs.
func (i *Injector) Wrap(c driver.Connector) driver.Connector {
	return &connector{Connector: c, injector: i}
}

// ask counts a statement and returns its fault.
func (i *Injector) ask(kind Kind, text string) Fault {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.n++
	s := Statement{N: i.n, Kind: kind, Text: text}
	i.seen = append(i.seen, s)
	var f Fault
	if i.plan != nil {
		f = i.plan(s)
	}
	if i.unreachable {
		f = Fault{Before: ErrLost, Cut: true}
		if kind == Connect {
			f = Fault{Before: ErrUnreachable}
		}
	}
	return f
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
