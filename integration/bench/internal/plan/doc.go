// Package plan says what is measured: which workloads, with how many clients, in which order, on which data.
//
// Start reading at plan.go.
package plan
