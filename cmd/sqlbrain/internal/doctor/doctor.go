package doctor

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sqlbrain/sqlbrain/migrations"
)

// Target is what to examine.
type Target struct {
	DB        *sql.DB
	Dialect   string // "mysql" or "sqlite"
	Datastore string // for the report: without a password
	Local     bool   // the connection does not leave this machine
	Address   string // host:port of the server, if it is one
	// MaxRequestBytes is the largest request that the server will accept.
	MaxRequestBytes int
	// MaxConns is how many connections the server may open.
	MaxConns int
}

// reachTimeout bounds the first answer of a server. Where something else listens, none comes.
const reachTimeout = 5 * time.Second

// Run examines t. An ended context shows as a failed check.
func Run(ctx context.Context, t Target) *Report {
	e := &examination{Target: t, Report: &Report{Datastore: t.Datastore}}
	start := time.Now()
	reach, cancel := context.WithTimeoutCause(ctx, reachTimeout,
		fmt.Errorf("no answer within %s: %w", reachTimeout, context.DeadlineExceeded))
	defer cancel()
	conn, err := t.DB.Conn(reach)
	if err == nil {
		// One connection for everything: session settings belong to it.
		defer conn.Close() //nolint:errcheck // only returns it to the pool
		err = conn.PingContext(reach)
	}
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = context.Cause(reach)
		}
		e.add("reachable", Fail, err.Error(), cmp.Or(Advice(err), "see what the error says"))
		return e.Report
	}
	e.conn = conn
	e.ok("reachable", "answered after %s", time.Since(start).Round(10*time.Microsecond))
	switch t.Dialect {
	case "mysql":
		e.mysql(ctx)
	case "sqlite":
		e.sqlite(ctx)
	default:
		e.add("engine", Fail, fmt.Sprintf("unknown dialect %q", t.Dialect), "use a mysql:// or sqlite:// URL")
	}
	return e.Report
}

type examination struct {
	Target
	*Report
	conn *sql.Conn
}

// ask reads the one row that a query answers. It reports false if that fails, having reported that check could not
// be made.
func (e *examination) ask(ctx context.Context, check, query string, into ...any) bool {
	err := e.conn.QueryRowContext(ctx, query).Scan(into...)
	if err != nil {
		e.broken(check, err)
	}
	return err == nil
}

// broken reports a check that could not be made.
func (e *examination) broken(check string, err error) {
	e.add(check, Warn, "could not be checked: "+err.Error(), "see whether the user may read this")
}

// schema reports what the migrations make of the database. It must not run while
// e.conn is in use: it takes another connection, which SQLite's pool may not
// have.
func schema(ctx context.Context, t Target) (f Finding) {
	f.Check, f.Status = "schema", Fail
	err := migrations.Verify(ctx, t.Dialect, t.DB)
	if err != nil {
		f.Detail, f.Advice, _ = strings.Cut(err.Error(), ": ")
	}
	switch {
	case err == nil:
		f.Status = OK
		version, verr := migrations.Latest(t.Dialect)
		f.Detail = fmt.Sprintf("version %d, as this binary needs", version)
		if verr != nil {
			f.Status, f.Detail, f.Advice = Warn, verr.Error(), "this binary is broken"
		}
	case errors.Is(err, migrations.ErrMissing), errors.Is(err, migrations.ErrOlder):
		f.Status = Warn
		f.Advice += ", or let `sqlbrain serve` do it (--migrate=auto)"
	}
	return f
}

// grant is a right that is tried out with a statement that touches no row.
type grant struct{ name, statement string }

var tableGrants = []grant{
	{"select", "SELECT object_value FROM object WHERE 1 = 0"},
	{"insert", "INSERT INTO object (internal_key, object_value) SELECT internal_key, object_value FROM object WHERE 1 = 0"},
	{"update", "UPDATE object SET object_value = object_value WHERE 1 = 0"},
	{"delete", "DELETE FROM object WHERE 1 = 0"},
}

// rights tries out what the user may do with the table.
func (e *examination) rights(ctx context.Context) {
	var missing, reasons []string
	for _, g := range tableGrants {
		if _, err := e.conn.ExecContext(ctx, g.statement); err != nil {
			missing = append(missing, g.name)
			reasons = append(reasons, err.Error())
		}
	}
	if len(missing) > 0 {
		e.add("privileges", Fail, fmt.Sprintf("cannot %s on table object: %s", strings.Join(missing, ", "), reasons[0]),
			"grant the user SELECT, INSERT, UPDATE and DELETE on the database, and make it writable")
		return
	}
	e.ok("privileges", "select, insert, update and delete on table object")
}

func bytesText(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
