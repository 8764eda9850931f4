// Package kubernetes has no code: its module says which Kubernetes the tests run,
// with the very dependencies that Kubernetes is released with. In the tests' own
// module newer ones, of etcd's client for one, would take their place.
package kubernetes
