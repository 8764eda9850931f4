// Package growth measures how a system changes with the size of its data: reads,
// counts, writes, memory, start, failover, and what a compaction costs.
//
// The requests and the checks of their answers are those of integration/internal/workload, whose model of the
// data takes about 300 bytes of memory for each key. The data is loaded through the system's own front door, in
// transactions of 128 puts; kine takes one put at a time.
//
// Start reading at growth.go.
package growth
