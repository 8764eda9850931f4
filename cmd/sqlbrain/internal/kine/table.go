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

// The states of a table. The column with the keys has a name for each state: no kine can write from its first change
// on, and one that is started by mistake fails, where it would make an empty table if the table itself had another
// name. Renaming a column needs no right to DROP.
const (
	Absent    Table = iota // there is no table
	Used                   // a kine may use it
	Importing              // the store has nothing that it has not: it is being imported, or returned to kine
	Adopted                // it was imported, or sqlbrain made it: the store alone counts
	Partial                // its rows are being written anew
)

// Columns of a table of kine's, by dialect.
const (
	columnsMySQL = "SELECT column_name FROM information_schema.COLUMNS WHERE table_schema = DATABASE() AND table_name " +
		"= 'kine'"
	columnsSQLite = "SELECT name FROM pragma_table_info('kine')"
)

const (
	claimTable   = "ALTER TABLE kine RENAME COLUMN name TO name_being_imported"
	adoptTable   = "ALTER TABLE kine RENAME COLUMN name_being_imported TO name_in_sqlbrain"
	reclaimTable = "ALTER TABLE kine RENAME COLUMN name_in_sqlbrain TO name_being_imported"
	returnTable  = "ALTER TABLE kine RENAME COLUMN name_being_imported TO name"

	// The rows that a kine makes without a client do not count as data.
	countData     = "SELECT COUNT(*) FROM (SELECT id FROM kine WHERE deleted = 0 AND "
	ofClients     = " NOT IN ('compact_rev_key', '/registry/health') LIMIT 1) AS data"
	dataUsed      = countData + "name" + ofClients
	dataImporting = countData + "name_being_imported" + ofClients
	dataAdopted   = countData + "name_in_sqlbrain" + ofClients

	newestRow = "SELECT COALESCE(MAX(id), 0) FROM kine"
)

// Inspect returns the state of the table.
func Inspect(ctx context.Context, dialect string, db *sql.DB) (Table, error) {
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
	case slices.Contains(columns, "name_being_imported"):
		return Importing, nil
	case slices.Contains(columns, "name_being_written"):
		return Partial, nil
	case slices.Contains(columns, "name"):
		return Used, nil
	}
	return Absent, nil
}

// hasData reports whether a table in that state has keys of clients.
func hasData(ctx context.Context, db *sql.DB, table Table) (bool, error) {
	var row *sql.Row
	switch table {
	case Adopted:
		row = db.QueryRowContext(ctx, dataAdopted)
	case Importing:
		row = db.QueryRowContext(ctx, dataImporting)
	default:
		row = db.QueryRowContext(ctx, dataUsed)
	}
	var rows int
	if err := row.Scan(&rows); err != nil {
		return false, fmt.Errorf("looking for data of kine: %w", err)
	}
	return rows > 0, nil
}

// revision returns kine's newest revision.
func revision(ctx context.Context, db *sql.DB) (rev int64, err error) {
	if err := db.QueryRowContext(ctx, newestRow).Scan(&rev); err != nil {
		return 0, fmt.Errorf("reading kine's revision: %w", err)
	}
	return rev, nil
}
