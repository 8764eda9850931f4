package kine

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/jmoiron/sqlx"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Table is what a database has of kine's table.
type Table int

// The states of a table. The column with the keys is renamed before they are imported: no kine
// can write from then on, and one that is started by mistake fails, where it would make an
// empty table if the table itself had another name. Renaming a column needs no right to DROP.
const (
	Absent  Table = iota // there is no table, or it has no data
	Used                 // a kine may use it
	Adopted              // its column of keys is renamed
	Partial              // its rows are being written anew
)

// Columns of a table of kine's, by dialect.
const (
	columnsMySQL  = "SELECT column_name FROM information_schema.COLUMNS WHERE table_schema = DATABASE() AND table_name = 'kine'"
	columnsSQLite = "SELECT name FROM pragma_table_info('kine')"
)

const (
	adoptTable  = "ALTER TABLE kine RENAME COLUMN name TO name_in_sqlbrain"
	returnTable = "ALTER TABLE kine RENAME COLUMN name_in_sqlbrain TO name"
	// The rows that a kine makes without a client do not count as data.
	lookInside = "SELECT COUNT(*) FROM (SELECT id FROM kine WHERE name NOT IN ('compact_rev_key', '/registry/health') LIMIT 1) AS data"
	newestRow  = "SELECT COALESCE(MAX(id), 0) FROM kine"
)

// Look returns the state of the table.
func Look(ctx context.Context, dialect string, db *sql.DB) (Table, error) {
	var columns []string
	var err error
	if x := sqlx.NewDb(db, dialect); dialect == sqlstore.DialectSQLite {
		err = x.SelectContext(ctx, &columns, columnsSQLite)
	} else {
		err = x.SelectContext(ctx, &columns, columnsMySQL)
	}
	switch {
	case err != nil:
		return Absent, fmt.Errorf("looking for kine's table: %w", err)
	case slices.Contains(columns, "name_in_sqlbrain"):
		return Adopted, nil
	case slices.Contains(columns, "name_being_written"):
		return Partial, nil
	case !slices.Contains(columns, "name"):
		return Absent, nil
	}
	var rows int
	if err := db.QueryRowContext(ctx, lookInside).Scan(&rows); err != nil {
		return Absent, fmt.Errorf("looking for data of kine: %w", err)
	}
	if rows == 0 {
		return Absent, nil
	}
	return Used, nil
}

// revision returns kine's newest revision.
func revision(ctx context.Context, db *sql.DB) (rev int64, err error) {
	if err := db.QueryRowContext(ctx, newestRow).Scan(&rev); err != nil {
		return 0, fmt.Errorf("reading kine's revision: %w", err)
	}
	return rev, nil
}
