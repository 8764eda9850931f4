// Package tidb holds what can be said of TiDB without one: every statement that
// sqlbrain sends to a MySQL is collected while it works, on a real server, and
// parsed with TiDB's own parser.
//
// That a statement parses does not show that TiDB does the right thing with it;
// ../../docs/tidb.md says what was read about that, ../internal/tidbsim simulates it,
// and `make test-tidb` runs the suites on a TiDB.
package tidb
