// Package integration runs the built sqlbrain program as its users do. README.md explains how to run the tests, how a
// test starts a node, what each package claims, and which environment variables make the tests longer.
//
// All test packages below this folder are one module, so that the dependencies of the tests stay out of the product's.
// The modules of programs/ hold no code: each pins a program that tests run, with the dependencies of its release.
//
// The packages that tests share:
//
//   - internal/harness: builds and runs sqlbrain, or etcd in its place, alone or as clusters, and databases that replicate,
//   - internal/history: records what clients observed, and verifies it against a watch from the first revision,
//   - internal/load: concurrent writers and readers that feed the recorder.
package integration
