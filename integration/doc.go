// Package integration drives the built sqlbrain binary as its users do: with
// etcdctl, with etcd's client, and with a database that goes away underneath.
// It is a module of its own, so that etcd's server and etcdctl stay out of the
// product's dependencies.
//
// The tests of this package read as the claims they check; README.md tells how
// to run them and which environment variables make them longer. Under them lie
//
//   - internal/harness: builds and runs sqlbrain (or etcd in its place, which
//     shows that the tests themselves are right) as processes,
//   - internal/history: records what clients were told, and verifies it against
//     what a watch from the beginning tells afterwards,
//   - internal/load: concurrent writers and readers that feed the recorder.
package integration
