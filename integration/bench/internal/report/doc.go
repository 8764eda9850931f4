// Package report writes what was measured for people: pages of tables, and the
// figures that documents quote.
//
// Start reading at page.go.
package report
