// Package compare runs the plan on each system in turn, round by round.
//
// In a round each system is started on fresh data, does all its workloads, and is
// stopped; nothing else that is compared runs meanwhile. The order of the systems
// changes from round to round. A workload is a process of its own, sqlbrain bench,
// which checks every answer.
//
// Start reading at compare.go.
package compare
