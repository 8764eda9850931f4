// Package siege keeps a node or a cluster under load, with watches of it, while a test does
// harm to it, and afterwards verifies all answers and all events of watches.
//
// Start reading at siege.go.
package siege
