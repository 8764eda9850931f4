// Package compare runs the plan on each system in turn, round by round.
//
// In a round each system is started on fresh data, does all its workloads, and is
// stopped. No other compared system runs at the same time. The order of the systems
// changes from round to round. Each workload is a separate process, sqlbrain bench,
// which checks every answer.
//
// Start reading at compare.go.
package compare
