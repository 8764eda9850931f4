package sqlstore

import (
	"database/sql/driver"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// WriterIdle is how long a store keeps a connection for writing on which nothing happens, unless Options.MaxIdleTime is
// shorter. The database ends it soon after.
const WriterIdle = 35 * time.Second

// Options configure a database; the zero value is usable.
type Options struct {
	// MaxOpenConns bounds the connections used for reading, 0 is the default: 32
	// for a server, twice the processors but at least 4 for SQLite. Commits have separate
	// connections, so that reads cannot starve them: 4 for a server, one for SQLite.
	MaxOpenConns int
	// PageCache is how many bytes of pages SQLite's connections keep in this process, together. They
	// take twice as much memory, because the allocator rounds a page and its header up to a power of two.
	// 0 is the default, 4 MiB. Other engines have none.
	PageCache int64
	// MaxIdleTime and MaxLifetime are after how long a connection to a server is closed that is not used, or used all the
	// time. 0 is the engine's default. SQLite's connections stay open.
	MaxIdleTime, MaxLifetime time.Duration
	// Logger receives what operators should know; nil discards it.
	Logger *slog.Logger
	// Registerer publishes the metrics; nil: they are not published. A registerer serves
	// one open store at a time.
	Registerer prometheus.Registerer
	// Tracer makes a span of each call of the store that is part of a sampled trace;
	// nil: none.
	Tracer trace.Tracer
	// Shared permits other stores to open the same SQLite file. SQLite's locks keep the
	// table whole. It is for programs that only read, next to a server.
	Shared bool
	// ReadOnly neither creates an SQLite file nor changes its journal mode: it may be another program's. It is for
	// programs that only read. Other engines ignore it.
	ReadOnly bool
	// WrapConnector, if set, wraps the engine's driver, below the session set-up. Package
	// faultdriver uses it.
	WrapConnector func(driver.Connector) driver.Connector
}

// WithDefaults returns o with what the engine fills in: a logger, and readConns in
// place of 0.
func (o Options) WithDefaults(readConns int) Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxOpenConns <= 0 {
		o.MaxOpenConns = readConns
	}
	return o
}
