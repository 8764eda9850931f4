package sqlite

import (
	"context"
	"strings"

	"github.com/jmoiron/sqlx"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// Check implements sqldb.Engine.
func (*engine) Check(ctx context.Context, conn *sqlx.Conn) (sqldb.Info, error) {
	info := sqldb.Info{Product: "SQLite", MaxRow: sqldb.MaxKey + sqldb.MaxValue}
	if err := conn.GetContext(ctx, &info.Version, "SELECT sqlite_version()"); err != nil {
		return info, err
	}
	for _, p := range []struct{ pragma, want, hint string }{
		{"journal_mode", "wal", "the file system must support shared memory; network file systems do not"},
		{"synchronous", "2", "this is a fault of the program"},
	} {
		var got string
		if err := conn.GetContext(ctx, &got, "PRAGMA "+p.pragma); err != nil {
			return info, err
		}
		if got != p.want {
			return info, sqldb.Unfit("%s is %s, not %s: %s", p.pragma, got, p.want, p.hint)
		}
	}
	var columns []struct {
		Name    string `db:"name"`
		Type    string `db:"type"`
		NotNull bool   `db:"notnull"`
		Key     int    `db:"pk"`
	}
	err := conn.SelectContext(ctx, &columns, `SELECT name, type, "notnull", pk FROM pragma_table_info('object')`)
	if err != nil {
		return info, err
	}
	if len(columns) == 0 {
		return info, sqldb.Unfit(sqldb.NoTable)
	}
	var withoutRowID bool
	if err := conn.GetContext(ctx, &withoutRowID,
		"SELECT wr FROM pragma_table_list('object') WHERE schema = 'main'"); err != nil {
		return info, err
	}
	ok := len(columns) == 2 && !withoutRowID
	for i, c := range columns {
		name, key := "internal_key", 1
		if i == 1 {
			name, key = "object_value", 0
		}
		ok = ok && c.Name == name && strings.EqualFold(c.Type, "BLOB") && c.NotNull && c.Key == key
	}
	if !ok {
		return info, sqldb.Unfit("table object is %+v, without rowid %v; it must be (internal_key BLOB NOT NULL PRIMARY "+
			"KEY, object_value BLOB NOT NULL) and not WITHOUT ROWID: "+sqldb.OtherTable, columns, withoutRowID)
	}
	return info, nil
}
