// Package load keeps a store busy with everything etcd's clients do to keys and
// leases, and records each request and its answer in a history.Recorder.
//
// Run starts the clients and Stop ends them; Watch follows a range through
// disconnections, as a client that must not miss anything does. Package history
// verifies the recorded requests and the events that the watches saw.
//
// Start reading at load.go, then worker.go.
package load
