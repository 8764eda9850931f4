package failover

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// A member that is idle reads a few rows twice a second, and its connection is due for a check each
// time. The check is then a part of the read: the first row of its result.

// separator stands between the columns of an answer in that row.
const separator = "|"

// queryChecked is QueryContext of a point read that asks the server as well. It returns
// driver.ErrBadConn if the connection must not be used.
func (c *conn) queryChecked(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	columns := groupColumns
	if c.primary.ungrouped.Load() {
		columns = primaryColumns
	}
	bounded, cancel := context.WithCancel(ctx)
	began, timer := time.Now(), time.AfterFunc(c.wait, cancel)
	rows, err := c.Conn.QueryContext(bounded, "SELECT '', CONCAT_WS('"+separator+"', "+columns+") UNION ALL "+text, args)
	var answer []string
	if err == nil {
		rows = &checkedRows{rows, cancel}
		if answer, err = firstRow(rows); err != nil {
			err = errors.Join(err, rows.Close())
		}
	}
	late := !timer.Stop()
	var refused *mysql.MySQLError
	switch {
	case err == nil:
		if server, err := parseAnswer(answer); !c.answered(began, server, err) {
			_ = rows.Close() // the connection is given up
			return nil, driver.ErrBadConn
		}
		return rows, nil
	case errors.As(err, &refused): // perhaps the user lost a right
		cancel()
		if !c.still(ctx) {
			return nil, driver.ErrBadConn
		}
		return c.Conn.QueryContext(ctx, text, args)
	case ctx.Err() != nil:
		cancel()
		return nil, err
	case late:
		c.late()
	}
	cancel()
	return nil, driver.ErrBadConn // it broke, or the server did not answer in time; a read may be repeated
}

// firstRow returns the columns of the answer in the first row.
func firstRow(rows driver.Rows) ([]string, error) {
	row := make([]driver.Value, 2)
	if err := rows.Next(row); err != nil {
		return nil, err
	}
	answer, _ := row[1].([]byte)
	return strings.Split(string(answer), separator), nil
}

// checkedRows are the rows after the first one.
type checkedRows struct {
	driver.Rows
	cancel context.CancelFunc
}

// Close implements driver.Rows.
func (r *checkedRows) Close() error {
	defer r.cancel()
	return r.Rows.Close()
}
