// Command bench measures sqlbrain and its peers, etcd and kine, on one machine
// and one disk. It is what `make bench` runs; docs/benchmarks says how it measures.
//
//	bench run      the same workloads on each system, several rounds
//	bench onecore  writes and gets on etcd and sqlbrain, server and client with one core each
//	bench growth   how figures change with the size of the data
//	bench report   write the page and the plots again from what was measured
//
// It needs Linux, Go to build the peers, and MySQL or MariaDB for the systems on
// them. The peers are built in the modules of ../programs, so that they have the
// dependencies of their releases.
//
// Start reading at run.go, then internal/compare, internal/plan and internal/system.
package main
