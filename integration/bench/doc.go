// Command bench measures sqlbrain beside its peers, etcd and kine, on one machine
// and one disk. It is what `make bench` runs; docs/benchmarks says how it measures.
//
//	bench run      the same workloads on each system, several rounds
//	bench growth   how figures change with the size of the data
//	bench report   write the page and the plots again from what was measured
//
// It needs Linux, Go to build the peers, and MySQL or MariaDB for the systems on
// them. It is a module of its own, so that the plots' dependencies stay out of the
// product's; the peers are modules of their own, so that they have the
// dependencies of their releases.
//
// Start reading at run.go, then internal/compare, internal/plan and internal/system.
package main
