// Package backend is etcd's state machine over one SQL table: transactions,
// ranges, compaction, leases, alarms. It knows no protobuf and no SQL.
//
// It upholds these invariants (the numbers are those of ARCHITECTURE.md):
//
//  1. One writer: every commit compares and swaps the chain row (chain.go).
//  2. Revisions are commit order: only the sequencer allocates, from package
//     tso, and a transaction that does not write gets none (pipeline.go).
//  3. A revision's content never changes: rows above the read revision are
//     filtered, and a read that raced with compaction answers ErrCompacted
//     (reader.go).
//  4. Acknowledged means durable and visible: frontier, then events, then
//     answers (commit.go).
//  6. Unknown outcomes are settled, not guessed (chain.go).
//
// Start reading at backend.go, then follow a write through pipeline.go,
// evaluate.go and commit.go, and a read through reader.go.
package backend
