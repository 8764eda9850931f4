// Package faults kills the server and breaks its database while clients write, and verifies that no acknowledged write
// is lost and that clients see whole transactions only.
//
// Start reading at siege_test.go: the load, and the verification that follows each fault.
package faults
