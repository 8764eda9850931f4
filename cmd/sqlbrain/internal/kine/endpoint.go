package kine

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// defaultFile is the SQLite file of a command line without an endpoint.
const defaultFile = "./db/state.db"

// datastore is what an endpoint of kine names.
type datastore struct {
	url   string   // for --datastore; it may hold a password
	notes []string // what has no effect here
}

// others are the schemes of kine's endpoints that are not supported.
var others = map[string]string{
	"postgres":   "PostgreSQL",
	"postgresql": "PostgreSQL",
	"nats":       "NATS",
	"jetstream":  "NATS JetStream",
	"t4":         "T4",
	"memory":     "data in memory",
	"litestream": "SQLite replicated by Litestream, which needs to decide itself when the file is checkpointed",
	"http":       "another etcd, to which its clients can connect directly",
	"https":      "another etcd, to which its clients can connect directly",
	"unix":       "another etcd, to which its clients can connect directly",
	"unixs":      "another etcd, to which its clients can connect directly",
}

// parseEndpoint reads an endpoint of kine. Its errors do not quote it.
func parseEndpoint(endpoint string, tls tlsFiles) (datastore, error) {
	if endpoint == "" {
		return parseSQLite(defaultFile)
	}
	scheme, rest, ok := strings.Cut(endpoint, "://")
	if !ok {
		return datastore{}, errors.New("it must begin with mysql:// or sqlite://")
	}
	switch scheme {
	case "mysql":
		return parseMySQL(rest, tls)
	case "sqlite":
		if rest == "" {
			rest = defaultFile
		}
		return parseSQLite(rest)
	}
	if engine := others[scheme]; engine != "" {
		return datastore{}, fmt.Errorf("%s:// is not supported (%s): sqlbrain keeps its data in mysql:// (MySQL, MariaDB, "+
			"TiDB) or sqlite://", scheme, engine)
	}
	// The text before the :// may be a part of a password.
	return datastore{}, errors.New("its scheme is not one of kine's: use mysql:// or sqlite://")
}

// parseSQLite reads what follows sqlite://: a path that is not percent-encoded, and parameters of kine's two drivers.
func parseSQLite(dsn string) (datastore, error) {
	path, query, _ := strings.Cut(dsn, "?")
	params, err := url.ParseQuery(query)
	if err != nil {
		return datastore{}, errors.New("the parameters of sqlite:// cannot be parsed")
	}
	if file, ok := strings.CutPrefix(path, "file:"); ok {
		if path, err = url.PathUnescape(file); err != nil {
			return datastore{}, errors.New("the path of sqlite:// has a broken percent-encoding")
		}
	}
	if path == "" || path == ":memory:" || params.Get("mode") == "memory" {
		return datastore{}, errors.New("sqlite:// must name a file: SQLite in memory is not supported")
	}
	d := datastore{url: "sqlite://" + (&url.URL{Path: path}).EscapedPath()}
	if query != "" {
		d.notes = append(d.notes, "the parameters of sqlite:// in --endpoint have no effect: sqlbrain configures SQLite "+
			"itself (WAL, synchronous=FULL)")
	}
	return d, nil
}
