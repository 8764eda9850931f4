package failover

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// Numbers of server errors, named as in the servers' own lists.
const (
	erBadField              = 1054
	erTableAccessDenied     = 1142
	erNoSuchTable           = 1146
	erUnknownSystemVariable = 1193
)

// Errors of asking a server that cannot be used. ErrNotPrimary: the server accepts no
// writes.
var (
	ErrNotPrimary = errors.New("the server is read-only: it is not, or no longer, the primary")
	errNoMember   = fmt.Errorf("%w of its group", ErrNotPrimary)
	errMinority   = fmt.Errorf("%w: it does not see the majority of its group", ErrNotPrimary)
)

const (
	// primaryColumns work on MySQL and MariaDB, without any privilege. A reader of Aurora
	// reports itself by innodb_read_only.
	primaryColumns = "@@GLOBAL.read_only, @@GLOBAL.innodb_read_only, @@server_id, @@port, @@hostname"
	// groupColumns also ask a member of a Group Replication for the opinion of its group. A
	// primary that lost the majority reports that it accepts writes, answers reads with old
	// rows, and makes commits wait, without limit by default. A restarted member that has
	// not joined accepts writes by itself. They need the right to read the table.
	groupColumns = primaryColumns + `, (SELECT CASE
		WHEN COUNT(*) = 0 THEN 'none'
		WHEN COUNT(*) = 1 AND MAX(member_state) = 'OFFLINE' AND '' = (SELECT variable_value FROM performance_schema.global_variables
			WHERE variable_name = 'group_replication_group_name') THEN 'none'
		WHEN SUM(member_id = @@server_uuid AND member_state = 'ONLINE' AND member_role = 'PRIMARY') = 0 THEN 'no primary'
		WHEN SUM(member_state <> 'UNREACHABLE') * 2 <= COUNT(*) THEN 'minority'
		ELSE 'primary' END FROM performance_schema.replication_group_members)`
)

// ask returns the name of the server that conn reaches, or the reason why it cannot be
// used.
func (p *Primary) ask(ctx context.Context, conn driver.QueryerContext) (server string, err error) {
	if !p.ungrouped.Load() {
		server, err := askPrimary(ctx, conn, groupColumns)
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
	return askPrimary(ctx, conn, primaryColumns)
}

// agree returns once the server's group has agreed that the server is a member. A server
// that was frozen while another one became the primary does not know that for seconds,
// and would answer reads with old rows.
func (p *Primary) agree(ctx context.Context, conn *sqldb.Conn) error {
	if p.alone.Load() {
		return nil
	}
	// Without the plugin, MySQL knows the one variable and not the other.
	_, err := conn.ExecContext(ctx, "SET SESSION group_replication_consistency = "+
		"IF(@@GLOBAL.group_replication_single_primary_mode, 'BEFORE', 'BEFORE')", nil)
	if refused, ok := errors.AsType[*mysql.MySQLError](err); ok && refused.Number == erUnknownSystemVariable {
		p.alone.Store(true)
		return nil
	}
	if err == nil {
		// It waits although it reads nothing; without a table it would not.
		var rows driver.Rows
		if rows, err = conn.QueryContext(ctx, "SELECT 1 FROM object WHERE 1 = 0", nil); err == nil {
			err = rows.Close()
		}
	}
	if err == nil {
		_, err = conn.ExecContext(ctx, p.consistency, nil)
	}
	if err != nil {
		return fmt.Errorf("wait for the server's group: %w", err)
	}
	return nil
}

// askPrimary is ask with one of the lists of columns.
func askPrimary(ctx context.Context, conn driver.QueryerContext, columns string) (server string, err error) {
	rows, err := conn.QueryContext(ctx, "SELECT "+columns, nil)
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
	return parseAnswer(text)
}

// parseAnswer returns the name of the server that gave an answer, or ErrNotPrimary.
func parseAnswer(text []string) (server string, err error) {
	if want := strings.Count(primaryColumns, "@@"); len(text) != want && len(text) != want+1 {
		return "", fmt.Errorf("ask which server it is: %d columns", len(text))
	}
	for _, mode := range text[:2] {
		if mode = strings.ToUpper(mode); mode != "0" && mode != "OFF" {
			return "", ErrNotPrimary
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
