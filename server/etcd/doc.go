// Package etcd has the handlers of etcd's RPCs. A handler checks its request, obtains a
// permit from the guard, translates the request, calls one component of the node, and translates
// the result back.
//
// The package also has what calls pass on their way to a handler and back: metadata of
// clients, hashing of passwords, the audit log, and the translation of errors. Listeners
// and the gRPC servers are package server's and package transport's.
//
// Invariants:
//
//   - Requests are checked in etcd's order and refused with etcd's errors; no field is
//     ignored silently (TestRequestsRefused, TestRequestsAccepted,
//     TestOverlappingWritesAreRefused).
//   - A handler that reads or changes keys, leases, users, roles or alarms without asking the guard does not compile,
//     because the calls take a permit, or refuses, because the zero watch.Decision does. Calls that take none (the
//     node's status with its alarms, the members, MoveLeader, the ranges that are watched) are made by handlers that
//     ask the guard first (in integration/compat TestAuthMatrix, in server/console TestUsersSeeOnlyWhatTheyMay).
//   - Every error of the packages below has an answer, and answers never contain the text
//     of an unexpected error (TestEveryErrorOfTheStoreHasAnAnswer, TestCausesAreLoggedNotSent).
//   - A request cannot cost more than its bounds: the steps of a transaction, the size
//     of a message (TestNestedTransactionsAreBoundedAsAWhole,
//     TestRequestSizeIsMeasuredAsEtcdDoes).
//   - A watch response is split only where the watcher allows it, and never inside an event
//     (TestFragments).
//
// Tests of whole calls, with listeners and forwarding, are in package server.
//
// Start reading at services.go and kv_put.go. What the handlers need of a node, by service, is in
// contracts.go.
package etcd
