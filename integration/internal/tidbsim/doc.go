// Package tidbsim simulates a TiDB in memory, below the product's own code for TiDB. It is
// not a TiDB: it executes the statements that sqlbrain sends, and its rules were read in
// TiDB's documentation and source. Each unit test names where.
//
// A Cluster is the simulated database. Its Connector takes the place of go-sql-driver, so
// that everything above the driver is the product: the session set-up, the statement
// cache, the commit, and the meaning of error numbers. Statements are parsed by TiDB's
// parser. A statement that is not simulated fails with error 1064 and its text.
//
// Start reading at cluster.go. mvcc.go, lock.go and txn.go are the storage and its
// transactions, session.go decides how a statement runs, compile.go and eval.go execute it,
// fault.go has what can go wrong, driver.go is the surface for database/sql.
//
// Invariants:
//   - A transaction commits as a whole, at one commit timestamp, or not at all.
//   - An injected fault never changes what is stored, except that it decides whether and
//     when a commit of unknown outcome happens.
//   - Time is that of package time, and no goroutine is started, so that a Cluster works in
//     a bubble of testing/synctest. Every random choice comes from the seed.
package tidbsim
