// Package sqlstore keeps rows, ordered by key, in one table of a SQL database:
// MySQL, MariaDB, TiDB or an embedded SQLite file. KvStorage and Store are the
// contract; DBStore realises them over database/sql with one small dialect per
// engine.
//
// What it upholds:
//
//   - A batch is committed whole or not at all, and only if every row it
//     compares holds what it should (one writer: a deposed leader's batch
//     conflicts on the chain row).
//   - Commit never guesses. An error that is not ErrUncertain is the truth: it is
//     given only if the engine said so, or if nothing was sent. An unknown
//     outcome is never repeated here; settling it needs the chain row.
//   - Nothing is truncated or folded: rows that do not fit are refused before any
//     SQL, and Check refuses a table or a server that would.
//   - A call that was answered is durable (SQLite synchronous=FULL; on a server
//     Check warns if it is set up to lose commits).
//   - Connections, statements and pages are bounded; nothing is read on after a
//     context ended.
//
// Start reading at kvstorage.go, then dbstore.go and commit of one dialect:
// mysql_commit.go or sqlite_commit.go. DESIGN.md has the reasons and the
// measurements. The subpackages: storetest is the conformance suite, memstore
// the in-memory reference, faultdriver breaks connections on purpose, enginetest
// gives tests a real server.
package sqlstore
