// Package load keeps a store busy with everything etcd's clients do to keys and
// leases, and tells a history.Recorder each request and its answer.
//
// Run starts the clients and Stop ends them; Watch follows a range through
// disconnections, as a client that must not miss anything does. What was
// recorded, and what the watches saw, is for package history to verify.
//
// Start reading at load.go, then worker.go.
package load
