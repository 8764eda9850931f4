// Package sqldb implements sqlstore.Store over database/sql. It owns everything that
// is alike on all engines: connection pools, session set-up, the cache of prepared
// statements, reads, pages, the attempts of a commit, metrics and traces. Engine is
// what differs between engines.
//
// Invariants, and the tests that check them (in package engines, on every engine):
//
//   - Commit's answer is the truth: fault_test.go breaks the connection before and
//     after each statement in turn.
//   - A read is of one state, or fails: reads are never cut short by a connection
//     that breaks between two rows (fault_test.go, storetest).
//   - No session is used without its settings (check_test.go).
//   - Close ends all calls and leaves no connection open (close_test.go).
//
// Start reading at engine.go, then store.go, commit.go and read.go.
package sqldb
