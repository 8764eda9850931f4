// Package benchmark runs etcd's own benchmark tool on sqlbrain: each of its
// subcommands that talks to a server must come to its end without an error.
//
// With SQLBRAIN_BENCHMARK_SCALE the totals grow, and etcd is measured beside it;
// the figures are told as a table, in requests or events a second. They compare
// only on a machine that has nothing else to do.
//
//	go test .
//	SQLBRAIN_BENCHMARK_SCALE=100 go test . -v -timeout 60m
//
// It is a module of its own because the tool brings etcd's main module along.
package benchmark
