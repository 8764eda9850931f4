// Package faults kills the server and breaks its database while clients write, and verifies that no acknowledged write
// is lost and that clients see whole transactions only.
//
// The load, and the verification that follows each fault, are in internal/siege.
package faults
