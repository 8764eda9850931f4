// Package benchmark runs etcd's own benchmark tool on sqlbrain: each of its
// subcommands that talks to a server must complete without an error.
package benchmark
