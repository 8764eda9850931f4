// Package transport is how bytes reach the server: listeners and their TLS, the decision between gRPC and HTTP on one
// port, connections of the process to itself, the JSON gateway, and gRPC's codec.
//
// It knows the messages of etcd's API but no handler of them: the server that assembles the parts decides what is
// served.
//
// Invariants:
//
//   - A connection is bounded before its first request: in time, and in the bytes that are kept of it
//     (TestFloodOfSettingsIsNotKept, TestConnectionIsRoutedWithinItsBound).
//   - A connection reaches the server of its protocol with all of its bytes (TestFirstRequestRoutes).
//   - The codec writes the bytes that protobuf writes (TestRangeResponsesHaveProtobufsBytes,
//     TestWatchResponsesHaveProtobufsBytes, TestEveryFieldOfRangeResponsesIsWritten).
//   - JSON requests are bounded one by one (TestJSONIsBoundedByValue).
//   - What waits in memory for a client to take it, or to send the rest of it, is bounded in bytes, and clients that do
//     their part do not pay for those that do not (Answers, Requests; TestBudgetEndsTheClaimsWithoutProgress,
//     TestLargeClaimsWaitForRoom, and in package server TestUnfinishedMessagesEnd; integration/chaos/bounds measures
//     it).
//   - Every stream can be ended, and every goroutine that receives from one is waited for (Streams; tested with the
//     server's handlers in package server).
//
// Start reading at listen.go; then route.go.
package transport
