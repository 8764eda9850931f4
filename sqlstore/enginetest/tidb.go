package enginetest

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"maps"
	"regexp"
	"strings"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// TiDB makes a MySQL or MariaDB report that it is a TiDB, so that tests run the code for
// TiDB on other engines. Such a test shows which statements are sent, and that the answers
// are understood. It does not show how a TiDB executes them.
type TiDB struct {
	// Version is what the server calls itself; empty is 8.0.11-TiDB-v8.5.3.
	Version string
	// Variables are shown by SHOW VARIABLES in place of the server's. Those that a
	// session sets in a comment for TiDB are added to them.
	Variables map[string]string
	// Regions are the boundaries that SHOW TABLE … REGIONS shows, as TiDB prints
	// them. Nil: the statement is an error.
	Regions []string
}

const tidbVersion = "8.0.11-TiDB-v8.5.3"

// ErrNoRegions is the error of SHOW TABLE … REGIONS without regions.
var ErrNoRegions = errors.New("enginetest: this edition does not show regions")

// Wrap returns a connector whose connections report a TiDB, for sqlstore.Options.
func (d *TiDB) Wrap(c driver.Connector) driver.Connector { return &disguised{c, d} }

type disguised struct {
	driver.Connector
	tidb *TiDB
}

func (c *disguised) Connect(ctx context.Context) (driver.Conn, error) {
	base, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn, ok := base.(disguisable)
	if !ok {
		return nil, errors.Join(errors.New("enginetest: this driver's connections cannot be disguised"), base.Close())
	}
	return &disguisedConn{disguisable: conn, tidb: c.tidb, set: map[string]string{}}, nil
}

// disguisable is a connection of MySQL's driver.
type disguisable interface {
	sqldb.DriverConn
	driver.NamedValueChecker
}

type disguisedConn struct {
	disguisable
	tidb *TiDB
	set  map[string]string
}

var (
	tidbComment    = regexp.MustCompile(`/\*T!(.*?)\*/`)
	tidbAssignment = regexp.MustCompile(`(tidb_\w+) = '([^']*)'`)
)

// ExecContext implements driver.ExecerContext.
func (c *disguisedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	result, err := c.disguisable.ExecContext(ctx, text, args)
	if comment := tidbComment.FindStringSubmatch(text); err == nil && comment != nil {
		for _, m := range tidbAssignment.FindAllStringSubmatch(comment[1], -1) {
			c.set[m[1]] = m[2]
		}
	}
	return result, err
}

// QueryContext implements driver.QueryerContext.
func (c *disguisedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	version := c.tidb.Version
	if version == "" {
		version = tidbVersion
	}
	switch {
	case strings.HasSuffix(text, " REGIONS"):
		if c.tidb.Regions == nil {
			return nil, ErrNoRegions
		}
		return newRegions(c.tidb.Regions), nil
	case text == "SELECT VERSION()":
		return &madeUp{columns: []string{"VERSION()"}, rows: [][]driver.Value{{[]byte(version)}}}, nil
	case strings.HasPrefix(text, "SHOW VARIABLES"):
		rows, err := c.disguisable.QueryContext(ctx, text, args)
		if err != nil {
			return nil, err
		}
		override := map[string]string{"version": version}
		maps.Copy(override, c.set)
		maps.Copy(override, c.tidb.Variables)
		return readVariables(rows, override)
	}
	return c.disguisable.QueryContext(ctx, text, args)
}

// madeUp is an answer that is held whole.
type madeUp struct {
	columns []string
	rows    [][]driver.Value
}

func (r *madeUp) Columns() []string { return r.columns }
func (r *madeUp) Close() error      { return nil }

func (r *madeUp) Next(dest []driver.Value) error {
	if len(r.rows) == 0 {
		return io.EOF
	}
	copy(dest, r.rows[0])
	r.rows = r.rows[1:]
	return nil
}

// readVariables reads rows of name and value, and puts override in.
func readVariables(rows driver.Rows, override map[string]string) (driver.Rows, error) {
	m := &madeUp{columns: rows.Columns()}
	for {
		row := make([]driver.Value, len(m.columns))
		if err := rows.Next(row); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		kept := make([]driver.Value, len(row))
		for i, v := range row {
			kept[i] = v
			if b, ok := v.([]byte); ok {
				kept[i] = append([]byte{}, b...) // the driver's buffer
			}
		}
		if name, ok := kept[0].([]byte); ok && override[string(name)] == "" {
			m.rows = append(m.rows, kept)
		}
	}
	for name, value := range override {
		m.rows = append(m.rows, []driver.Value{[]byte(name), []byte(value)})
	}
	return m, rows.Close()
}

// newRegions has the columns of TiDB 8.
func newRegions(bounds []string) driver.Rows {
	m := &madeUp{columns: []string{"REGION_ID", "START_KEY", "END_KEY", "LEADER_ID", "LEADER_STORE_ID", "PEERS",
		"SCATTERING", "WRITTEN_BYTES",
		"READ_BYTES", "APPROXIMATE_SIZE(MB)", "APPROXIMATE_KEYS", "SCHEDULING_CONSTRAINTS", "SCHEDULING_STATE"}}
	for i, start := range bounds {
		end := ""
		if i+1 < len(bounds) {
			end = bounds[i+1]
		}
		m.rows = append(m.rows, []driver.Value{int64(i + 2), []byte(start), []byte(end), int64(3), int64(1), []byte("3"),
			int64(0),
			int64(0), int64(0), int64(1), int64(0), []byte(""), []byte("")})
	}
	return m
}
