// Package simulation runs a whole cluster in one process and in simulated time: three nodes,
// their clients, the database and the network between them, in a bubble of testing/synctest.
// A seed decides what clients do and which faults occur when, so that thousands of histories
// can be tried, and one that fails can be tried again, many times.
//
// The nodes are the product's own (node.Join, server.New), wired as the command wires them.
// Three things are replaced, through their configuration:
//
//   - The network (network.go): listeners and dialers in memory, with latency, partitions,
//     connections that break or hang, and machines that are off.
//   - The database (database.go): a store in memory, whose statements are slow, fail before or
//     after they are executed, or are executed long after their caller has given up.
//   - The clocks that correctness depends on, those of the read lease and of clients' leases
//     (node.go): each machine's has its own rate, and stands still while the machine is suspended.
//
// Everything is recorded, and most is judged at the end (judge.go): every answer is what a model of etcd's
// key space answers (package history), histories are linearizable and revisions contiguous,
// watches exact, leases end neither early nor late, acknowledged writes are kept, and each node
// answers writes soon after the last fault is over. The bubble fails if a goroutine is left.
//
// Three judges look behind what clients see, where a mistake shows sooner or at all: what nodes log (logs.go), what
// they show inside their processes (local.go), and what is in the table (table.go).
//
// Limits: a goroutine cannot be stopped from outside. A paused or suspended
// machine sends and receives nothing, but its timers and its computing continue. A process
// that stops between a check and its effect is therefore seen only where the effect is a
// message or a statement.
//
// The nodes' steps of the protocol are recorded too: no leader is replaced without a reason (succession.go), and the
// model of the protocol has to allow each step (steps_test.go, docs/model.md).
//
// The order of goroutines is not part of a seed: the same one has another trace each time (docs/simulation.md).
//
// Start reading at plan.go and world.go.
package simulation
