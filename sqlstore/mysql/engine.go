package mysql

import (
	"cmp"
	"context"
	"database/sql/driver"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/mysql/failover"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

const (
	defaultReadConns = 32
	writeConns       = 4
	// Servers, and proxies in front of them, drop idle connections, and a new
	// primary is found by dialling again. An idle member reads twice a second, and
	// commits every 30 s, on one connection; what a burst opened is closed after
	// maxIdleTime, because a server's memory is shared by all that are connected.
	maxIdleTime = time.Minute
	maxLifetime = 30 * time.Minute
)

// engine implements sqldb.Engine for MySQL 8 and later, MariaDB 10.6 and later, and
// TiDB.
type engine struct {
	logger  *slog.Logger
	primary *failover.Primary
	upserts statementTexts
	// patient makes connections for writing whose reads have no time bound.
	patient driver.Connector
	// grouped: the server is configured for Group Replication, as of the last Check.
	grouped atomic.Bool
	// galera: the server is a node of a Galera cluster, as of the last Check.
	galera atomic.Bool
	// tidb: the server is a TiDB, as of Serve.
	tidb atomic.Bool
}

// OpenDB makes the pools of the database u names. It does not connect.
func OpenDB(u *sqlstore.URL, o sqlstore.Options) (*sqldb.Database, error) {
	o = o.WithDefaults(defaultReadConns)
	bounded, patient, err := connectors(u)
	if err != nil {
		return nil, err
	}
	if o.WrapConnector != nil {
		for i, base := range bounded {
			bounded[i] = o.WrapConnector(base)
		}
	}
	e := &engine{logger: o.Logger}
	e.primary = failover.New(failover.Config{
		Logger: o.Logger, Servers: u.Addresses(), Equals: u.Scheme == "tidb", Consistency: setReplicatedReads,
	})
	pool := func(servers []driver.Connector, write bool) driver.Connector {
		sessions := make([]*sqldb.Session, len(servers))
		statements, together, joined := sessionStatements(write)
		for i, base := range servers {
			sessions[i] = &sqldb.Session{Base: base, Statements: statements, Together: together, Joined: joined,
				MayRefuse: mayRefuse, Unprepared: tooManyPrepared}
		}
		return e.primary.Connector(sessions, write)
	}
	e.patient = pool(patient, true)
	db := sqldb.NewDatabase(u, o.Logger, e, sqldb.Pools{
		Read: failover.Finishing(pool(bounded, false)), Write: failover.Finishing(pool(bounded, true)),
		ReadConns: o.MaxOpenConns, WriteConns: writeConns,
		MaxIdleTime: cmp.Or(o.MaxIdleTime, maxIdleTime), MaxLifetime: cmp.Or(o.MaxLifetime, maxLifetime), Remote: true,
	})
	db.Write().SetConnMaxIdleTime(min(cmp.Or(o.MaxIdleTime, maxIdleTime), sqlstore.WriterIdle))
	e.primary.OnChange(db.DropIdle)
	return db, nil
}

// Name implements sqldb.Engine.
func (*engine) Name() string { return sqlstore.DialectMySQL }

// Lock implements sqldb.Engine: servers are made for several processes.
func (*engine) Lock() (io.Closer, error) { return nil, nil }

// Serve implements sqldb.Engine: a store needs the primary, and TiDB has none.
func (e *engine) Serve(db *sqldb.Database, info sqldb.Info) func(context.Context) {
	e.tidb.Store(info.Product == productTiDB)
	if info.Product != productTiDB {
		e.primary.Demand(e.grouped.Load())
	}
	return func(ctx context.Context) { db.KeepSpare(ctx, sqlstore.WriterIdle/2) }
}

// Failed implements sqldb.Engine.
func (e *engine) Failed(err error) {
	if elsewhere(err) {
		e.primary.GiveUp(err)
	}
}

// Reconnects implements sqldb.Engine.
func (e *engine) Reconnects() int64 { return e.primary.Lost() }

// Collectors implements sqldb.Engine.
func (*engine) Collectors() []prometheus.Collector { return nil }

// Bounds implements sqldb.Engine: only TiDB shows where it keeps rows.
func (*engine) Bounds(ctx context.Context, info sqldb.Info, q sqldb.Querier) ([][]byte, error) {
	if info.Product != productTiDB {
		return nil, nil
	}
	return regionBounds(ctx, q)
}
