// Package sqlstore defines how sqlbrain stores rows: KvStorage and Store are the
// contract of a table of rows ordered by key. The table lies in a SQL database:
// MySQL, MariaDB, TiDB or an embedded SQLite file.
//
// This package holds the contract and what all implementations share: errors,
// options, the URL of a database, the changes of a batch, the pages of a range. It
// imports no engine. Its subpackages, each of which imports those above it only:
//
//	sqldb           a Store over database/sql, for every engine
//	mysql, sqlite   the engines; mysql/failover keeps connections on the primary
//	engines         opens a database by its URL
//
// and for tests:
//
//	memstore        a Store in memory, the reference of the contract
//	storetest       the conformance suite
//	enginetest      database servers for tests
//	faultdriver     connections that break on purpose
//
// Invariants:
//
//   - A batch is committed as a whole or not at all, and only if every row it
//     compares holds the expected value. There is one writer: the batch of a deposed
//     leader conflicts on the fence row.
//   - Commit never guesses. An error that is not ErrUncertain is the truth: the
//     engine said so, or nothing was sent. A commit of unknown outcome is never
//     repeated here; the caller resolves it with the fence row.
//   - Nothing is truncated or folded. Rows that do not fit are refused before any
//     SQL, and Check refuses a table or a server that would alter them.
//   - An acknowledged commit is durable (SQLite: synchronous=FULL; on a server, Check
//     warns if its settings may lose commits).
//   - Connections, statements and pages are bounded. No read continues after its
//     context has ended.
//
// Start reading at kvstorage.go, then sqldb/engine.go and one engine's commit.go.
// DESIGN.md has the reasons, the measurements and how to add an engine.
package sqlstore
