// Package steptrace records the steps of the protocol between the nodes of a cluster and their database: who took the
// fence row, what was committed and resolved, and when a revision became readable. docs/model.md explains how a
// recorded run is validated against the model of the protocol.
//
// Packages fence and backend record steps through a Trace. Without one they record nothing. OpenFile returns a Trace
// that appends to a file.
package steptrace
