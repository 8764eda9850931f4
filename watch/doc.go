// Package watch is being written.
package watch
