// Package siege keeps a cluster under load, with watches of it, while a test does
// harm to it, and verifies afterwards all that clients and watches were told.
//
// Start reading at siege.go.
package siege
