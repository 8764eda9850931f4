// Package report writes what was measured for people: a page of tables, the targets,
// and plots.
//
// Start reading at page.go.
package report
