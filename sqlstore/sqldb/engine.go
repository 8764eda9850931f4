package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Engine is what differs between the engines. A value belongs to one Database and is
// safe for concurrent use.
type Engine interface {
	// Name returns the dialect, such as sqlstore.DialectMySQL.
	Name() string
	// Check verifies that a store can use the database, whose session settings it
	// reads on conn. The error wraps sqlstore.ErrUnfit if something must be changed,
	// else it is the driver's.
	Check(ctx context.Context, conn *sqlx.Conn) (Info, error)
	// Serve is called once, when a store opens the database db that Check described. What it returns runs beside the
	// store, until its context ends.
	Serve(db *Database, info Info) (beside func(ctx context.Context))
	// Statements returns the statements for the database that Check described.
	Statements(info Info) *Statements
	// Classify says what an error of the driver means that the function Classify does
	// not know.
	Classify(err error) Failure
	// Retryable reports whether a read that failed with err may succeed after a pause: the
	// engine's storage did not answer, and its server works.
	Retryable(err error) bool
	// Commit chooses how to carry out a batch. statement names it in metrics.
	Commit(info Info, ops []sqlstore.Op) (statement string, attempt Attempt)
	// Bounds returns the keys, in order, at which the engine splits the table into
	// partitions; nil if it has one partition or does not say.
	Bounds(ctx context.Context, info Info, q Querier) ([][]byte, error)
	// Size, FreeSpace and Defragment are those of sqlstore.Store.
	Size(ctx context.Context, db *Database) (total, inUse int64, err error)
	FreeSpace() (free, reserve int64, err error)
	Defragment(ctx context.Context, db *Database) error
	// Lock keeps other processes from locking the same database until the returned
	// lock is closed; it is nil if the engine is made for several processes.
	Lock() (io.Closer, error)
	// Failed is notified of the error of each call of the store.
	Failed(err error)
	// Reconnects counts how often all connections were replaced because the server
	// was no longer the primary.
	Reconnects() int64
	// Collectors returns the engine's own metrics.
	Collectors() []prometheus.Collector
}

// Attempt carries out a batch once, on a connection for writing; see
// sqlstore.BatchWrite.Commit for its errors. again reports that nothing was written
// and that a repetition may succeed.
type Attempt func(ctx context.Context, conn *sql.Conn) (again bool, err error)

// Pools describes the two connection pools of a database.
type Pools struct {
	// Read and Write make the connections, of type *Conn or embedding it.
	Read, Write           driver.Connector
	ReadConns, WriteConns int
	// MaxIdleTime and MaxLifetime bound how long a connection is kept; 0: no bound.
	MaxIdleTime, MaxLifetime time.Duration
	// Remote: rows that were requested cross a network even if they are not read.
	Remote bool
}

// Info is what Check found out about the engine.
type Info struct {
	// Product and Version are the engine's own, such as "MariaDB" and "10.11.6".
	Product, Version string
	// MaxPacket is the largest packet, in bytes, that the server accepts; 0 if it
	// has no such limit.
	MaxPacket int
	// MaxRow bounds key plus value of a row, and MaxBatch those of a batch, in bytes;
	// MaxBatch 0: no bound.
	MaxRow, MaxBatch int
}

// Statements are the statements whose wording differs.
type Statements struct {
	// Snapshot begins a transaction whose reads all see one state.
	Snapshot []string
	// List and ListKeys take two bounds and a limit.
	List, ListKeys string
	// Lookup is List with its condition left open: it ends in IN, and a list of keys follows. Empty: the engine joins
	// at a higher price than that of two statements.
	Lookup string
	// Count takes a revision, twice, and two bounds.
	Count string
	// LatestAtOrBefore takes a number, which it returns before key and value, and two bounds.
	LatestAtOrBefore string
	// Timestamp returns microseconds since 1970, UTC.
	Timestamp string
}
