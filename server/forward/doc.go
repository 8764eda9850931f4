// Package forward sends the calls that need the leader from a follower to the leader.
//
// A Forwarder executes a call on this member first, and forwards it if the member does not
// lead. The service sqlbrain.Forward has the calls between members that etcd has no unary
// RPC for. Request ids name a client's call in the logs of all members that take part in it.
//
// Invariants:
//
//   - A write is sent to a second leader only if the first one certainly did not execute it
//     (TestAWriteWhoseAnswerIsLostIsNotRepeated in package server).
//   - The leader learns who calls from the member that forwards, never from the client's
//     metadata (TestForwardedCallsCarryTheCaller in package server).
//   - A member never forwards what another member has forwarded: only servers for clients
//     use a Forwarder.
//
// Start reading at forward.go.
package forward
