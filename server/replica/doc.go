// Package replica is one node's replica of the table: the newest revision that is visible on it, and
// the publishing of the leader's commits to readers and watchers. While the node leads, it also has
// what the leader adds: the write pipeline, the lessor and the compactor. It knows neither protobuf
// nor SQL.
//
// It upholds these invariants (the numbers are those of ARCHITECTURE.md):
//
//   - 3. A read never returns a part of a commit, nor what compaction has left of an older
//     revision (TestRandomHistoriesMatchTheModel, TestFollowerChecksMarkAfterReading).
//   - 4. An acknowledged write is durable and visible on every node: the visible revision moves before
//     the answer, and a linearizable read on a follower waits for the visible revision of the leader
//     (TestFollowerReadsAcknowledgedWrites, TestReadLeaseExpiresWhileSuspended).
//   - A commit is not visible on a follower before it is on its leader
//     (TestFollowerHidesCommitUnknownToLeader).
//   - A node stops serving when it finds that the database has lost data
//     (lost_test.go, divergence_test.go).
//   - Every call for a client needs a permit (TestZeroPermitRefusesEveryEntryPoint).
//
// Start reading at replica.go and open.go. A write continues in write.go and package write, a read in
// read_revision.go and package read, a commit of another leader in apply.go and catch_up.go.
// DESIGN.md explains how the parts work together.
package replica
