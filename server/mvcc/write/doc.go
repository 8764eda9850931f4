// Package write is the write path of the store. Every change of the table that has an order
// passes through a Pipeline: transactions of clients, changes of leases, users and roles,
// alarms, the compaction mark.
//
// A Command is queued (Pipeline.Submit), collected into a batch while the batch before it is
// committed, evaluated by the sequencer against the newest state (Tx), and committed with its
// batch in one atomic step, together with the fence row (fence.Holder). The data that a command needs from
// the table is read before the sequencer gets to it: index rows by the collector, ranges and
// the keys of leases in the goroutine of the caller (Prefetch). Package txn evaluates transactions.
//
// Invariants, and the tests that hold them:
//
//   - Commands take effect in one order, as if each were committed alone, and each sees the
//     ones before it: TestRandomBatchesMatchTheModel in server/replica.
//   - A command that fails writes nothing and takes no revision:
//     TestAFailedCommandLeavesNothingBehind.
//   - A commit writes only if the rows that it replaces are what the index cache has:
//     TestAStaleIndexIsNotBelieved. An entry that was read before a commit changed its row is
//     not kept: TestAnIndexEntryReadBeforeAChangeIsNotKept.
//   - A key is assumed absent only if the commit proves it: TestAssumptionsAreProvenOrDropped.
//   - The sequencer reads no ranges: TestSequencerReadsNoRanges in
//     server/replica, and TestRevokingReadsNothingOnTheSequencer in server/lease.
//   - A permit is checked on the state that its command is evaluated on:
//     TestPermitSeesAuthChangeOfItsBatch, and TestPermitSeesKeysOfLease in server/lease.
//
// Its files in the order of a write: pipeline.go, txn.go, prefetch.go, queue.go, authorize.go, collect.go,
// sequencer.go, optimistic.go, permit.go, tx.go, commit.go. Below them is what they share: prefetched.go,
// decisions.go, attached.go, index_read.go, index_cache.go, batch.go, request.go, tracing.go, config.go.
package write
