// Command bench compares sqlbrain with etcd and kine: it sends kube-apiserver's requests and checks every answer.
// docs/benchmarks says how to use it, and how it measures.
//
//	bench results      the same workloads on sqlbrain, etcd and kine, several rounds
//	bench scoreboard   objects that come and go, in the same way
//	bench interference what background work costs other clients
//	bench nodes        a Kubernetes cluster of many nodes
//	bench report       write the pages and the quoted figures again from what was measured
//
// The comparisons need Linux, Go to build the peers, and MySQL or MariaDB for the systems on
// them. The peers are built in the modules of ../programs, so that they have the
// dependencies of their releases.
//
// The workloads are in ../internal/workload. Start reading at run.go, then internal/compare, internal/plan and
// internal/system.
package main
