// Command bench drives etcd endpoints with kube-apiserver's requests, measures them and checks every answer.
// docs/benchmarks says how to use it, and how it measures.
//
//	bench create, get, churn …   one workload on a server that runs already, any etcd too
//	bench results      the same workloads on sqlbrain, etcd and kine, several rounds
//	bench scoreboard   objects that come and go, in the same way
//	bench growth       how figures change with the size of the data
//	bench report       write the pages and the quoted figures again from what was measured
//
// The comparisons need Linux, Go to build the peers, and MySQL or MariaDB for the systems on
// them. The peers are built in the modules of ../programs, so that they have the
// dependencies of their releases.
//
// The workloads are in ../internal/workload. Start reading at run.go, then internal/compare, internal/plan and
// internal/system.
package main
