// Package txn evaluates transactions. Evaluate is a function of a State and a transaction: it returns
// the result and the changes, and has no goroutine, no store and no effect outside its results. The
// write pipeline, read-only transactions and tests call it.
//
// Invariants, and the tests that hold them:
//
//   - A transaction sees the state before it, and its own earlier changes:
//     TestRandomHistoriesMatchTheModel of server/replica.
//   - An operation that is not valid fails the transaction before anything is changed, and all
//     compares are decided on the state before it: TestValidationPrecedesChanges.
//
// Start reading at evaluate.go.
package txn
