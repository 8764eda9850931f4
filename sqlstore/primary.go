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

	"github.com/go-sql-driver/mysql"
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

// primaryWait bounds asking a connection that is open. A server that was frozen,
// or cut off, would else hold up whoever asks for as long as that one has time.
const primaryWait = time.Second

// Errors of asking a server that cannot be used. errNotPrimary: it takes no writes.
var (
	errNotPrimary = errors.New("the server is read-only: it is not, or no longer, the primary")
	errNoMember   = fmt.Errorf("%w of its group", errNotPrimary)
	errMinority   = fmt.Errorf("%w: it does not see the majority of its group", errNotPrimary)
)

const (
	// primaryQuery is understood by MySQL and MariaDB, without any privilege. A reader
	// of Aurora says by innodb_read_only what it is.
	primaryQuery = "SELECT @@GLOBAL.read_only, @@GLOBAL.innodb_read_only, @@server_id, @@port, @@hostname"
	// groupQuery asks a member of a Group Replication as well what its group thinks of
	// it. A primary that lost the majority says that it takes writes, answers reads with
	// what it had, and waits, for ever by default. And one that was started again but has
	// not joined takes writes of its own. It needs the right to read the table.
	groupQuery = primaryQuery + `, (SELECT CASE
		WHEN COUNT(*) = 0 THEN 'none'
		WHEN COUNT(*) = 1 AND MAX(member_state) = 'OFFLINE' AND '' = (SELECT variable_value FROM performance_schema.global_variables
			WHERE variable_name = 'group_replication_group_name') THEN 'none'
		WHEN SUM(member_id = @@server_uuid AND member_state = 'ONLINE' AND member_role = 'PRIMARY') = 0 THEN 'no primary'
		WHEN SUM(member_state <> 'UNREACHABLE') * 2 <= COUNT(*) THEN 'minority'
		ELSE 'primary' END FROM performance_schema.replication_group_members)`
)

// primary is which server the connections of a database reach. Safe for
// concurrent use.
type primary struct {
	logger *slog.Logger
	// dropIdle closes the connections that nobody uses.
	dropIdle func()

	// equals: any server will do, as with TiDB.
	equals bool
	// ungrouped is set when a server does not say what its group thinks of it: it is
	// no MySQL, or the user may not know.
	ungrouped atomic.Bool
	// alone is set when a server knows nothing of Group Replication.
	alone atomic.Bool
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

// admit notes which server a connection reached that was dialled in era, and
// returns the era it belongs to. No server is "".
func (p *primary) admit(server string, era int64) int64 {
	if server == "" || !p.demanded.Load() {
		return era
	}
	p.mu.Lock()
	before := p.server
	p.server = server
	p.mu.Unlock()
	if before != "" && before != server {
		era = p.giveUp(fmt.Errorf("connected to %s, and before to %s", server, before))
	}
	return era
}

// ask returns the name of the server that conn reaches, or why it cannot be used.
func (p *primary) ask(ctx context.Context, conn driver.QueryerContext) (server string, err error) {
	if !p.ungrouped.Load() {
		server, err := askPrimary(ctx, conn, groupQuery)
		var refused *mysql.MySQLError
		if !errors.As(err, &refused) {
			return server, err
		}
		switch refused.Number {
		case erTableAccessDenied, erNoSuchTable, erUnknownSystemVariable, erBadField:
			p.ungrouped.Store(true)
		default:
			return server, err
		}
	}
	return askPrimary(ctx, conn, primaryQuery)
}

// agree returns when the server's group has agreed that it is a member: one that was
// frozen, and another one has become the primary since, does not know for seconds,
// and would answer with what it had.
func (p *primary) agree(ctx context.Context, conn *cachedConn) error {
	if p.alone.Load() {
		return nil
	}
	// Without the plugin, MySQL knows the one variable and not the other.
	_, err := conn.exec.ExecContext(ctx, "SET SESSION group_replication_consistency = IF(@@GLOBAL.group_replication_single_primary_mode, 'BEFORE', 'BEFORE')", nil)
	var refused *mysql.MySQLError
	if errors.As(err, &refused) && refused.Number == erUnknownSystemVariable {
		p.alone.Store(true)
		return nil
	}
	if err == nil {
		// It waits although it reads nothing; without a table it would not.
		var rows driver.Rows
		if rows, err = conn.query.QueryContext(ctx, "SELECT 1 FROM object WHERE 1 = 0", nil); err == nil {
			err = rows.Close()
		}
	}
	if err == nil {
		_, err = conn.exec.ExecContext(ctx, setReplicatedReads, nil)
	}
	if err != nil {
		return fmt.Errorf("wait for the server's group: %w", err)
	}
	return nil
}

// askPrimary is ask with one of the queries.
func askPrimary(ctx context.Context, conn driver.QueryerContext, query string) (server string, err error) {
	rows, err := conn.QueryContext(ctx, query, nil)
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
	if want := strings.Count(primaryQuery, "@@"); len(text) != want && len(text) != want+1 {
		return "", fmt.Errorf("ask which server it is: %d columns", len(text))
	}
	for _, mode := range text[:2] {
		if mode = strings.ToUpper(mode); mode != "0" && mode != "OFF" {
			return "", errNotPrimary
		}
	}
	if len(text) > 5 {
		switch text[5] {
		case "no primary":
			return "", errNoMember
		case "minority":
			return "", errMinority
		}
	}
	return fmt.Sprintf("%s:%s (server_id %s)", text[4], text[3], text[2]), nil
}

// primaryConn is a connection's part in it. database/sql lets one goroutine at a
// time use it.
type primaryConn struct {
	*primary
	era    int64
	server string // it was dialled to, "" if it was not asked
	asked  time.Time
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
	ctx, cancel := context.WithTimeout(ctx, primaryWait)
	defer cancel()
	server, err := c.ask(ctx, conn)
	if err != nil {
		if errors.Is(err, errNotPrimary) {
			c.giveUp(err)
		}
		return false
	}
	c.asked = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.primary.server == "" {
		c.primary.server = server // of the connection that checked the database
	}
	return c.primary.server == server
}
