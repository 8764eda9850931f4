// Package link connects the members of one cluster to each other. Both sides of a
// connection authenticate, and each call names the member that it is meant for.
//
// A Pool has one Client per member: a gRPC connection over TLS 1.3. Security checks
// certificates for dialers and acceptors. CheckUnary and CheckStream check calls.
//
// Invariants:
//
//   - Only members connect. A dialer requires the certificate of the member that it
//     wants to reach, an acceptor that of any current member (TestMembersAuthenticateEachOther,
//     TestOnlyMembersAreAccepted, TestDialerRejectsOtherProcesses).
//   - A process that was removed or replaced loses its connections with the next Revoke
//     (TestRevokedMembersLoseTheirConnections, TestPoolDropsProcessesThatWereReplaced).
//   - A call never reaches another member or cluster than the one it is meant for, even
//     where a new process listens at an old address (TestCallsForAnotherMemberAreRefused).
//   - ErrRefused means that every address of the member refused the connection. Timeouts
//     and broken connections are never reported as ErrRefused (TestRefusedConnectionReturnsErrRefused,
//     TestOtherFailuresAreNotErrRefused).
//   - Unknown processes cost bounded memory, log lines and reads of the members
//     (TestHandshakesAreBounded, TestRejectionsInTheLogAreBounded).
//
// Start reading at pool.go; for authentication at security.go, accept.go and certificate.go.
package link
