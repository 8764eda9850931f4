// Package gotest builds the tests of packages that others wrote, and runs them with
// a test of ours: each of their top-level tests becomes an Outcome.
package gotest
