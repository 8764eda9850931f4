// Package benchmark runs etcd's own benchmark tool on sqlbrain: each of its
// subcommands that talks to a server must complete without an error.
//
// With SQLBRAIN_BENCHMARK_SCALE the totals grow, and etcd is measured as well.
// The figures are printed as a table, in requests or events a second, and written
// to the file that SQLBRAIN_BENCHMARK_PAGE names, if it is set. They are comparable
// only on an otherwise idle machine.
//
//	go test .
//	SQLBRAIN_BENCHMARK_SCALE=100 go test . -v -timeout 60m
package benchmark
