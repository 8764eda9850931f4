// Package robustness puts several nodes under concurrent clients while nodes,
// network and database fail, and has etcd's validators judge the answers:
// porcupine, over etcd's model, whether all of them together are linearizable;
// the watch validators whether every watch on every node was ordered, unique,
// atomic, complete and resumable, with the right previous values and no progress
// that overtakes events. An additional judge checks that every later linearizable
// request knows what a watch has shown.
//
// Clients, keys and faults come from a seed. A failure prints it, with the plan
// of faults:
//
//	-seed=…   the same plan, and the same clients
//	-plan=…   this plan, whatever the seed
//	-time=…   rounds with new seeds for so long, as 30m
//
// The durable writes are read from the table after the servers have ended, or with etcd from its log: log rows say
// which keys each revision changed, version rows what to. Rows are copied before a compaction deletes them. So the
// clients' answers are judged by the data, not by the server.
//
// One node over each engine has the traffic of etcd's own robustness tests: profile_test.go. Leases that end by
// themselves, which these judges cannot follow, are the simulation's.
//
// The nodes record the steps of the protocol between them and the database, and the model of the protocol has to allow
// each of them: trace_test.go, docs/model.md.
//
// A control shows that the judges see: tamper_test.go changes a right history. That a sqlbrain without a safeguard is
// noticed is the simulation's TestSafeguardsAreNeeded.
//
// Start reading at round_test.go; then plan_test.go, traffic_test.go and
// watch_test.go.
package robustness
