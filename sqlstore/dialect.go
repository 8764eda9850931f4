package sqlstore

import (
	"context"
	"database/sql/driver"

	"github.com/jmoiron/sqlx"

	"github.com/sqlbrain/sqlbrain/sqlstore/internal/batch"
)

// dialect is what differs between the engines. A value belongs to one Database.
type dialect interface {
	name() string
	// connectors returns a connector to each server of u, before session set-up.
	connectors(u *URL) ([]driver.Connector, error)
	// session returns the statements that every new connection begins with.
	session(write bool) []string
	// mayRefuse reports whether a connection can do without one of them.
	mayRefuse(statement string, err error) bool
	writeConns() int
	check(ctx context.Context, db *Database, conn *sqlx.Conn) (Info, error)
	// classify says what an error of the driver means.
	classify(err error) failure
	texts() *texts
	// commit carries out a batch; see BatchWrite.Commit for its errors.
	commit(ctx context.Context, s *DBStore, ops []batch.Op) error
	size(ctx context.Context, db *Database) (total, inUse int64, err error)
	defragment(ctx context.Context, db *Database) error
}

// texts are the statements whose wording differs.
type texts struct {
	// snapshot begins a transaction whose reads all see one state.
	snapshot []string
	// list and listKeys take two bounds and a limit.
	list, listKeys string
	// count takes a revision, twice, and two bounds.
	count string
	// floor takes a number, which it returns before key and value, and two bounds.
	floor string
	// timestamp returns microseconds since 1970, UTC.
	timestamp string
}
