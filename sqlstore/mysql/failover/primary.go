// Package failover keeps the connections of a MySQL database on one server, the
// primary.
//
// When a database fails over, the name in the URL, or the proxy at that name, leads
// to another server, while open connections stay with the old one. That server is
// read-only then, may lag, and would answer reads with rows that are missing or old.
// The pools must therefore agree on one server:
//
//   - An error that says that the server is read-only, or is leaving its cluster,
//     replaces all connections.
//   - A new connection asks which server it has reached. If that is not the server
//     reached before, all older connections are replaced.
//   - A read-only server is not the primary, and a new connection to it is refused.
//     An idle connection is checked again when it is taken from the pool, at most
//     once every 250 ms, because reads alone would meet no error.
//   - Other processes notice a change up to 250 ms later, and their reads would miss what
//     is committed on the new primary until then. So the first commit there waits that long.
//
// A URL may name several servers, which replicate to each other, where no proxy and
// no name follows the primary: see hosts.go.
//
// None of this decides which member may commit: the fence row does. TiDB has no
// primary; its servers are never asked, and only errors replace connections.
//
// Tests: package mysql, with real servers that turn read-only, and answer_test.go.
package failover

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// primaryRecheck is how long a connection is trusted to reach the primary: far
// shorter than the promotion of another server, and long enough to cost reads
// nothing measurable.
const primaryRecheck = 250 * time.Millisecond

// settling is how long after a change of the server no connection for writing is made: all
// processes have checked theirs then. An old server is read-only before another one accepts writes.
const settling = primaryRecheck + 50*time.Millisecond

// warnInterval is the shortest time between two warnings.
const warnInterval = time.Second

// primaryWait bounds the check of an open connection. A server that is frozen or cut
// off would otherwise delay the caller up to the caller's own deadline.
//
// A server that has too much to do is late as well, and a connection costs it several
// times as much as a check. So the checks of connections that are made after one was late
// may take twice as long, up to longestWait, until one is in time again. If all replaced
// their connections every second, many members would keep an overloaded server busy with
// nothing else.
const (
	primaryWait = time.Second
	longestWait = 16 * time.Second
)

// Config configures a Primary.
type Config struct {
	Logger *slog.Logger
	// Servers are the host:port of each server.
	Servers []string
	// Equals: any server will do, as with TiDB.
	Equals bool
	// Consistency is the statement that sets a session to wait for what other servers
	// committed before.
	Consistency string
}

// Primary is the server that the connections of a database reach. Safe for concurrent
// use.
type Primary struct {
	logger      *slog.Logger
	servers     []string
	equals      bool
	consistency string
	// dropIdle closes the connections that are not in use.
	dropIdle func()

	// ungrouped is set if a server does not report the opinion of its group: it is not
	// MySQL, or the user lacks the right.
	ungrouped atomic.Bool
	// alone is set if a server knows nothing of Group Replication.
	alone atomic.Bool
	// demanded is set once a store is open. Before, a replica may well be examined.
	demanded atomic.Bool
	// era counts how often all connections were replaced. A connection belongs to the
	// era in which it was dialled.
	era atomic.Int64
	// wait is how long the checks of connections may take that are made now.
	wait atomic.Int64

	mu     sync.Mutex
	server string    // the last one reached, "" if none was asked
	moved  time.Time // when another one than before was first reached
	warned time.Time // when a replacement was last logged
}

// New returns a Primary that accepts every server until Demand is called.
func New(c Config) *Primary {
	p := &Primary{logger: c.Logger, servers: c.Servers, equals: c.Equals, consistency: c.Consistency, dropIdle: func() {}}
	p.wait.Store(int64(primaryWait))
	return p
}

// OnChange sets the function that closes the idle connections of all pools. It must be
// called before the first connection is made.
func (p *Primary) OnChange(dropIdle func()) { p.dropIdle = dropIdle }

// Demand makes every connection reach the primary. If the server is a member of a
// Group Replication, grouped, the connections made so far are replaced: they were made
// without asking the group.
func (p *Primary) Demand(grouped bool) {
	p.demanded.Store(true)
	if grouped {
		p.dropIdle()
	}
}

// GiveUp makes the pools replace all connections, because of cause. Connections in use
// are closed when they come back.
func (p *Primary) GiveUp(cause error) { p.giveUp(cause) }

// giveUp is GiveUp, and returns the era that begins.
func (p *Primary) giveUp(cause error) (era int64) {
	era = p.era.Add(1)
	p.mu.Lock()
	quiet := time.Since(p.warned) < warnInterval // many calls may meet the same error
	if !quiet {
		p.warned = time.Now()
	}
	p.mu.Unlock()
	if !quiet {
		p.logger.Warn("giving up all connections to the database", "cause", cause)
	}
	p.dropIdle()
	return era
}

// Lost returns how often all connections were replaced.
func (p *Primary) Lost() int64 { return p.era.Load() }

// admit records the server, "" if it was not asked, that a connection dialled in era
// reached, and returns the era the connection belongs to.
func (p *Primary) admit(server string, era int64) int64 {
	if server == "" || !p.demanded.Load() {
		return era
	}
	p.mu.Lock()
	before := p.server
	p.server = server
	moved := before != "" && before != server
	if moved {
		p.moved = time.Now()
	}
	p.mu.Unlock()
	if moved {
		era = p.giveUp(fmt.Errorf("connected to %s, and before to %s", server, before))
	}
	return era
}

// settle returns once a connection may be written to.
func (p *Primary) settle(ctx context.Context) error {
	p.mu.Lock()
	settled := p.moved.Add(settling)
	p.mu.Unlock()
	return retry.Sleep(ctx, time.Until(settled))
}

// agrees reports whether server is the one that the other connections reach.
func (p *Primary) agrees(server string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server == "" {
		p.server = server // of the connection that checked the database
	}
	return p.server == server
}
