// Package result keeps what was measured: a JSON file that is complete after each
// figure, so that a run can be gone on with, and medians of rounds.
//
// Start reading at file.go.
package result
