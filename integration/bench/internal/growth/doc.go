// Package growth measures how a system changes with the size of its data: reads,
// counts, writes, memory, start, failover, and what a compaction costs.
//
// The data is numbered: each key and each value follows from its number, so every
// answer is checked, at any size, without remembering what was written. It is loaded
// through the system's own front door, in transactions of 128 puts, because what is
// written past the server would have to repeat all it writes; kine takes one put
// at a time.
//
// Start reading at growth.go, then dataset.go and load.go.
package growth
