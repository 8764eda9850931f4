// Package replica is one node's replica of the table, and what the leader adds to it. It
// joins the packages below it to etcd's state machine: transactions, ranges, compaction,
// leases, alarms, users and roles. It knows neither protobuf nor SQL.
//
// It upholds these invariants (the numbers are those of ARCHITECTURE.md):
//
//   - 3. A read never returns a part of a commit, nor what compaction has left of an older
//     revision (TestRandomHistoriesMatchTheModel, TestFollowerChecksMarkAfterReading).
//   - 4. An acknowledged write is durable and visible on every node: the visible revision moves before
//     the answer, and a linearizable read on a follower waits for the visible revision of the leader
//     (TestFollowerReadsAcknowledgedWrites, TestCutOffLeaderRefusesLinearizableReads).
//   - A follower does not show a commit that its leader does not show yet
//     (TestFollowerHidesCommitUnknownToLeader).
//   - A node stops serving when it finds that the database has lost data
//     (TestDataLossStopsServing, lost_test.go).
//   - Every call for a client needs a permit (TestZeroPermitRefusesEveryEntryPoint).
//
// Start reading at replica.go. For a write continue with package write, for a read with
// visible.go and package read. DESIGN.md explains how the parts work together.
package replica
