// Package compat shows that one sqlbrain node answers exactly like etcd. The
// reference is a real etcd that runs next to it: every request goes to both, and
// the answers are compared field by field. The tests here contain no expected
// answers: every expected answer comes from etcd in the same run.
//
// Three kinds of tests:
//
//   - Histories: seeded random requests over KV, Lease, Watch and Maintenance, sent
//     one after the other to both servers, with the whole state compared at
//     several revisions afterwards, and again after both were started anew. A
//     difference is shrunk to a short history, which is printed with the
//     variables that replay it. Concurrent histories are recorded from sqlbrain
//     and replayed into etcd in the order in which sqlbrain committed.
//   - Claims: named tests, one for each sentence about what a compatible server
//     must get right.
//
// The tests record what they compare (record_test.go), and docs/compatibility.md is
// generated from that: all that etcd's descriptors name (surface_test.go), with the
// results of the tests (page_test.go).
//
// Not compared are: cluster and member ids and raft terms beyond being set,
// raft indexes, sizes, ids of leases that the server chose, and the remaining time
// of a lease within a tolerance. docs/compatibility.md lists the differences that are known
// and accepted, and the flags.
//
// Start reading at history_test.go, then world_test.go, and claim_test.go.
package compat
