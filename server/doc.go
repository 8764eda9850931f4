// Package server puts the server together: etcd's gRPC services, its JSON gateway, its HTTP
// endpoints and the console, over one replica.Replica and its watch.Hub.
//
// The parts are packages: etcd has the handlers, forward sends calls from a follower to
// the leader, transport brings connections in, status has health, metrics and the log of
// requests. This package has their configuration, the gRPC servers for clients and for
// other members, and start and stop. Its tests make whole calls.
//
// Invariants:
//
//   - A call that only the leader can answer is executed once: a write that may have been
//     executed is never sent again (TestAWriteWhoseAnswerIsLostIsNotRepeated).
//   - Stopping is bounded: health turns NOT_SERVING, listeners close, streams end, calls
//     under way get Config.StopTimeout, then connections are cut
//     (TestStopEndsStreamsAndLetsCallsFinish, TestStopIsBounded).
//
// Start reading at server.go, then services.go.
package server
