package sqlite

import (
	"context"
	"io"
	"log/slog"
	"runtime"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// engine implements sqldb.Engine for a file in write-ahead mode: one connection
// writes, the others read the state before. One store at a time has the file (see
// lock.go). Other programs may read it, and even write: SQLite's locks serialise all
// transactions.
type engine struct {
	path        string
	logger      *slog.Logger
	checkpoints *checkpoints
	// low is set while less than the reserve and what the log usually has is free, as of the last call of FreeSpace: what
	// is in the log may need as much in the file.
	low    atomic.Bool
	growth atomic.Int64 // see measureGrowth
}

// preparedAtOnce is Session.AtOnce. Preparing costs no round trip here, and the rows of a statement that is not kept
// would end it after a connection that broke.
const preparedAtOnce = 16

// OpenDB makes the pools of the database u names. It opens no file; the directory of
// the database is created (mode 0700) if it does not exist.
func OpenDB(u *sqlstore.URL, o sqlstore.Options) (*sqldb.Database, error) {
	o = o.WithDefaults(defaultReadConns())
	base, err := connect(u, o.ReadOnly, o.Logger)
	if err != nil {
		return nil, err
	}
	writer, reader := pageCaches(o.PageCache, o.MaxOpenConns)
	if o.WrapConnector != nil {
		base = o.WrapConnector(base)
	}
	return sqldb.NewDatabase(u, o.Logger, &engine{path: u.Path, logger: o.Logger, checkpoints: newCheckpoints()},
		sqldb.Pools{
			Read:      &sqldb.Session{Base: base, AtOnce: preparedAtOnce, Statements: sessionStatements(false, reader)},
			Write:     &sqldb.Session{Base: base, AtOnce: preparedAtOnce, Statements: sessionStatements(true, writer)},
			ReadConns: o.MaxOpenConns, WriteConns: 1}), nil
}

func defaultReadConns() int { return max(4, 2*runtime.GOMAXPROCS(0)) }

// Name implements sqldb.Engine.
func (*engine) Name() string { return sqlstore.DialectSQLite }

// Lock implements sqldb.Engine.
func (e *engine) Lock() (io.Closer, error) {
	l, err := lockFile(e.path)
	if err != nil {
		return nil, err // not a Closer that holds nil
	}
	return l, nil
}

// Serve implements sqldb.Engine.
func (e *engine) Serve(db *sqldb.Database, _ sqldb.Info) func(context.Context) {
	warnOfModes(e.logger, e.path)
	return func(ctx context.Context) { e.checkpointBesideCommits(ctx, db) }
}

// Failed implements sqldb.Engine: a file has no other server.
func (*engine) Failed(error) {}

// Reconnects implements sqldb.Engine.
func (*engine) Reconnects() int64 { return 0 }

// Collectors implements sqldb.Engine.
func (e *engine) Collectors() []prometheus.Collector {
	return []prometheus.Collector{e.checkpoints.total, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sqlbrain_sqlite_log_bytes",
		Help: "Size of the file of SQLite's write-ahead log. It grows while something reads an older state.",
	}, func() float64 { return float64(logSize(e.path)) })}
}

// Bounds implements sqldb.Engine: a file is one partition.
func (*engine) Bounds(context.Context, sqldb.Info, sqldb.Querier) ([][]byte, error) { return nil, nil }
