package sqlstore

import (
	"database/sql/driver"
	"log/slog"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// Options configure a database; the zero value is usable.
type Options struct {
	// MaxOpenConns bounds the connections used for reading, 0 is the default: 32
	// for a server, twice the processors but at least 4 for SQLite. Commits have
	// connections of their own, so that reads cannot starve them: 4 for a
	// server, one for SQLite.
	MaxOpenConns int
	// Logger gets what an operator should know; nil discards it.
	Logger *slog.Logger
	// Registerer gets the metrics; nil keeps them unregistered. One registerer
	// serves one open store.
	Registerer prometheus.Registerer
	// Tracer makes a span of each call of the store that is part of a sampled trace;
	// nil: none.
	Tracer trace.Tracer
	// Shared lets other stores have the same SQLite file open. SQLite's own locks
	// keep the table whole; it is for tests, which look on with a second store.
	Shared bool
	// WrapConnector, if set, is put between the pools and the engine's driver,
	// below the session set-up. It is where package faultdriver goes.
	WrapConnector func(driver.Connector) driver.Connector
}

const mysqlWriteConns = 4

func (o Options) withDefaults(dialect string) Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxOpenConns <= 0 {
		o.MaxOpenConns = 32
		if dialect == DialectSQLite {
			o.MaxOpenConns = max(4, 2*runtime.GOMAXPROCS(0))
		}
	}
	return o
}
