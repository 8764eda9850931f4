// Package compare runs the plan on each system in turn, round by round.
//
// In a round each system is started on fresh data, does all its workloads, and is
// stopped. No other compared system runs at the same time. The order of the systems
// changes from round to round. The workloads are those of integration/internal/workload,
// which checks every answer, and run in this process.
//
// Start reading at compare.go.
package compare
