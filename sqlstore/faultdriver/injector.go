package faultdriver

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"sync"
)

// Plan decides what happens to a statement. It is called by the goroutine that
// sends it, one at a time, and must not use the database.
type Plan func(Statement) Fault

// Injector injects faults into the connections of the connectors it wraps. Safe
// for concurrent use.
type Injector struct {
	mu    sync.Mutex
	plan  Plan
	n     int
	seen  []Statement
	conns int // open ones
}

// New returns an injector that injects nothing yet.
func New() *Injector { return new(Injector) }

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

// Conns returns the number of open connections.
func (i *Injector) Conns() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.conns
}

func (i *Injector) count(change int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.conns += change
}

// Wrap returns a connector whose connections the plan governs.
func (i *Injector) Wrap(c driver.Connector) driver.Connector {
	return &connector{Connector: c, injector: i}
}

type connector struct {
	driver.Connector
	injector *Injector
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	f := c.injector.ask(Connect, "")
	if err := f.before(ctx); err != nil {
		return nil, err
	}
	base, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.after(ctx); err != nil {
		return nil, errors.Join(err, base.Close())
	}
	conn, err := newConn(base, c.injector)
	if err != nil {
		return nil, errors.Join(err, base.Close())
	}
	return conn, nil
}

// ask counts a statement and returns its fault.
func (i *Injector) ask(kind Kind, text string) Fault {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.n++
	s := Statement{N: i.n, Kind: kind, Text: text}
	i.seen = append(i.seen, s)
	if i.plan == nil {
		return Fault{}
	}
	return i.plan(s)
}
