// Package gotest builds and runs the tests of third-party packages from within our
// tests. Each of their top-level tests becomes an Outcome.
package gotest
