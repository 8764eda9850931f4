package kine

import (
	"context"
	"database/sql"
	"errors"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// ErrOwnData: the database holds data of kine's.
var ErrOwnData = errors.New("the database has a table kine with data, which this version does not take over; " +
	"serving would begin with an empty store. Name an empty database in --endpoint and copy the keys from a running kine with " +
	"'sqlbrain restore --from', or rename the table kine if its data is no longer needed")

// The rows that a kine makes without a client do not count as data.
const (
	findMySQL  = "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'kine'"
	findSQLite = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = 'kine'"
	lookInside = "SELECT COUNT(*) FROM (SELECT id FROM kine WHERE name NOT IN ('compact_rev_key', '/registry/health') LIMIT 1) AS data"
)

// Adopt decides what happens to kine's own table before sqlbrain serves on its database, which is of this dialect. It
// returns ErrOwnData if the table holds data. It is the place to import the data.
func Adopt(ctx context.Context, dialect string, db *sql.DB) error {
	var tables, rows int
	var err error
	if dialect == sqlstore.DialectSQLite {
		err = db.QueryRowContext(ctx, findSQLite).Scan(&tables)
	} else {
		err = db.QueryRowContext(ctx, findMySQL).Scan(&tables)
	}
	if err != nil || tables == 0 {
		return err
	}
	if err := db.QueryRowContext(ctx, lookInside).Scan(&rows); err != nil {
		return err
	}
	if rows > 0 {
		return ErrOwnData
	}
	return nil
}
