// Package engines opens a database by its URL. It is the only package that knows all
// engines: an engine is a line of the table below.
package engines

import (
	"context"
	"fmt"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/mysql"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqlite"
)

// dialects are the engines by URL.Dialect.
var dialects = map[string]func(*sqlstore.URL, sqlstore.Options) (*sqldb.Database, error){
	sqlstore.DialectMySQL:  mysql.OpenDB,
	sqlstore.DialectSQLite: sqlite.OpenDB,
}

// OpenDB makes the pools of the database u names. It does not connect; SQLite's
// directory is created (mode 0700) if it does not exist.
func OpenDB(u *sqlstore.URL, o sqlstore.Options) (*sqldb.Database, error) {
	open, ok := dialects[u.Dialect]
	if !ok {
		return nil, fmt.Errorf("%w: unknown dialect %q", sqlstore.ErrURL, u.Dialect)
	}
	return open(u, o)
}

// Open opens the database u names and checks it (see sqldb.Database.Check); the table
// must exist. An SQLite file is locked (see sqldb.Database.Lock) unless o.Shared is
// set. Closing the store closes the database.
func Open(ctx context.Context, u *sqlstore.URL, o sqlstore.Options) (*sqldb.Store, error) {
	db, err := OpenDB(u, o)
	if err != nil {
		return nil, err
	}
	return sqldb.Open(ctx, db, o)
}
