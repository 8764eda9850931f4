// Package election decides which of several members tries to lead. The lock is
// one row of the table, changed by compare-and-swap alone; the rules of taking,
// renewing and losing it are those of client-go's leader election, which needs
// no synchronised clocks: a member judges a holder by the changes of the row
// it saw itself.
//
// The lock is for liveness only. Who may commit is decided by the chain row,
// which fences: taking the lock too early costs a pause, never a write.
// Therefore a leader goes on while its renewals fail, until it sees that
// somebody else took the lock, and a member may take the lock of a process that
// is evidently dead, unless the record is renewed while that is suspected.
//
// What the package upholds:
//
//   - Lead is not called again before its last call returned.
//   - Lead's context ends as soon as another process is seen to have taken the
//     lock, even if that one gave it back since.
//   - A record says that it was handed over only if the Lead of whoever wrote
//     it returned nil before.
//   - Release and transfer replace nothing but a record of this process's own.
//
// Start reading at elector.go; DESIGN.md has the reasons.
package election
