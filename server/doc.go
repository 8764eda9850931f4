// Package server is the front that etcd clients talk to: etcd's gRPC services,
// its JSON gateway and its HTTP endpoints over one backend.Backend and its
// watch.Hub.
//
// A handler checks the request, translates it, calls one thing and translates
// the answer back. No SQL is known here, and no protobuf below here.
//
// What the package upholds:
//
//   - Nothing is silently ignored: a request that is not supported answers with
//     an explicit error.
//   - Requests are checked in etcd's order, with etcd's codes and texts.
//   - Errors of the packages below become gRPC errors in one place, errors.go,
//     whichever handler they come from. Texts of unexpected errors are logged,
//     not sent: they may name hosts, users and statements.
//   - Responses of a watch stream are sent in the order its watch.Stream queued
//     them, by one goroutine.
//   - A call that only the leader can answer is executed once: what may have been
//     executed, and writes, is never sent again (forward.go).
//   - Stopping is bounded: health turns NOT_SERVING, listeners close, streams
//     end, calls under way get Config.StopTimeout, then connections are cut.
//
// The files: server.go puts everything together; listen.go, route.go and tls.go
// bring connections in; interceptors.go is what every call passes; forward.go
// sends to the leader what a follower cannot answer, peers.go is the port it
// arrives at; kv_*.go, watch.go, lease.go, members.go, maintenance.go, auth.go,
// lock.go and election_rpc.go hold the RPCs; http.go, health.go and gateway.go
// the rest of what a port answers. Start reading at kv_put.go, then
// translate.go and errors.go.
package server
