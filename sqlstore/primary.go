package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// When a database fails over, the name in the URL, or the proxy behind it, leads
// to another server, while connections that are open stay with the old one. That
// one is read-only from then on, may lag behind the new one, and would answer
// reads with rows that are missing or old. So the pools must agree on one server:
//
//   - An error that says that the server is read-only, or is leaving its cluster,
//     gives up every connection: the next ones are dialled.
//   - A connection that is dialled says which server it has reached. Another one
//     than before gives up all connections made until then.
//   - A read-only server is not the primary, and a new connection to one is
//     refused. It is asked again when the connection is taken from the pool,
//     once every primaryRecheck: whoever only reads meets no error otherwise.
//
// None of it decides who may commit: the chain row does. TiDB has no primary, so
// there the errors alone count.

// primaryRecheck is how long a connection is trusted to reach the primary: far
// shorter than it takes to promote another server, and long enough not to be seen
// in what reads cost.
const primaryRecheck = 250 * time.Millisecond

// warnInterval is the shortest time between two warnings.
const warnInterval = time.Second

// errNotPrimary: the server that answered takes no writes.
var errNotPrimary = errors.New("the server is read-only: it is not, or no longer, the primary")

// primaryQuery is understood by MySQL and MariaDB, without any privilege. A reader
// of Aurora says by innodb_read_only what it is.
const primaryQuery = "SELECT @@GLOBAL.read_only, @@GLOBAL.innodb_read_only, @@server_id, @@port, @@hostname"

// primary is which server the connections of a database reach. Safe for
// concurrent use.
type primary struct {
	logger *slog.Logger
	// dropIdle closes the connections that nobody uses.
	dropIdle func()

	// demanded is set when the store is open: who examines a database may well
	// examine a replica.
	demanded atomic.Bool
	// era counts the times all connections were given up. A connection belongs to
	// the era in which it was dialled.
	era atomic.Int64

	mu     sync.Mutex
	server string    // the last one reached, "" if none was asked
	warned time.Time // when giving up was last logged
}

// giveUp makes the pools replace all connections, because of cause, and returns
// the era that begins. Connections in use are closed when they come back.
func (p *primary) giveUp(cause error) (era int64) {
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

// lost is how often all connections were given up.
func (p *primary) lost() int64 {
	if p == nil {
		return 0
	}
	return p.era.Load()
}

// admit judges a connection that was dialled in era, and returns the one it
// belongs to.
func (p *primary) admit(ctx context.Context, conn driver.QueryerContext, era int64) (int64, error) {
	if !p.demanded.Load() {
		return era, nil
	}
	server, err := askPrimary(ctx, conn)
	if err != nil {
		return era, err
	}
	p.mu.Lock()
	before := p.server
	p.server = server
	p.mu.Unlock()
	if before != "" && before != server {
		era = p.giveUp(fmt.Errorf("connected to %s, and before to %s", server, before))
	}
	return era, nil
}

// askPrimary returns the name of the server that conn reaches, or errNotPrimary.
func askPrimary(ctx context.Context, conn driver.QueryerContext) (server string, err error) {
	rows, err := conn.QueryContext(ctx, primaryQuery, nil)
	if err != nil {
		return "", fmt.Errorf("ask which server it is: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	row := make([]driver.Value, len(rows.Columns()))
	if err := rows.Next(row); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return "", fmt.Errorf("ask which server it is: %w", err)
	}
	text := make([]string, len(row))
	for i, v := range row {
		if b, ok := v.([]byte); ok {
			v = string(b)
		}
		text[i] = fmt.Sprint(v)
	}
	if len(text) != 5 {
		return "", fmt.Errorf("ask which server it is: %d columns", len(text))
	}
	for _, mode := range text[:2] {
		if mode = strings.ToUpper(mode); mode != "0" && mode != "OFF" {
			return "", errNotPrimary
		}
	}
	return fmt.Sprintf("%s:%s (server_id %s)", text[4], text[3], text[2]), nil
}

// primaryConn is a connection's part in it. database/sql lets one goroutine at a
// time use it.
type primaryConn struct {
	*primary
	era   int64
	asked time.Time
}

// current reports whether the connection is of the present era.
func (c *primaryConn) current() bool { return c.primary == nil || c.era == c.primary.era.Load() }

// still asks the server again if it was not asked for a while, and reports
// whether the connection may be used.
func (c *primaryConn) still(ctx context.Context, conn driver.QueryerContext) bool {
	if !c.current() {
		return false
	}
	if c.primary == nil || !c.demanded.Load() || time.Since(c.asked) < primaryRecheck {
		return true
	}
	server, err := askPrimary(ctx, conn)
	if err != nil {
		if errors.Is(err, errNotPrimary) {
			c.giveUp(err)
		}
		return false
	}
	c.asked = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == "" {
		c.server = server // of the connection that checked the database
	}
	return c.server == server
}
