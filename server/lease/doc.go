// Package lease keeps the leases of clients. The table records that a lease exists and which
// keys it holds (one attachment row for each key); only commands of the write pipeline change
// that. The time at which a lease ends is known to the leader alone, in a Lessor.
//
// A Lessor checkpoints the remaining time of leases, so that the next leader neither restarts
// nor shortens them: when the remaining time has fallen to half of what the table holds, at
// least every five minutes, and when the leader hands over. The next leader continues at the
// last checkpoint, so a change of leader prolongs a lease by at most half its life, or 3 s if that is
// more, and timing.LeaseGrace: TestLeaderChangeProlongsLeaseByHalf.
//
// # No lease ends early
//
// The answer to a grant or a renewal promises that the lease lives for its TTL, even if the
// leader fails. Therefore, as long as a leader can acknowledge renewals, the table holds at
// least the time up to the promised end. TestNoLeaseEndsEarly checks this on random
// histories. These rules imply it; the test after each rule fails without it:
//
//   - A checkpoint computes the remaining time while the sequencer evaluates it, and lowers
//     persisted in the same critical section (Lessor.toWrite). The row includes every
//     earlier renewal, and every later renewal finds the lower value:
//     TestTableHoldsAtLeastPersistedTime, TestCheckpointKeepsLaterRenewal.
//   - A renewal that finds less than the TTL in persisted is acknowledged after a commit,
//     which the sequencer orders after the checkpoint (Lessor.KeepAlive). Other renewals need
//     no commit, because the table holds the full TTL:
//     TestRenewalWaitsForCommitAfterCheckpoint.
//   - persisted is raised only after a commit, to what the commit wrote (Lessor.written). It
//     does not change when a commit fails. A commit that takes long, or is evaluated again,
//     leaves too much time in the row, never too little: TestTableHoldsAtLeastPersistedTime.
//   - The remaining time is rounded up (lease.remaining): TestHandoverRoundsRemainingTimeUp.
//   - A lease whose time is up is never renewed, so its revocation cannot race with a renewal
//     (lease.over): TestLeaseExpiresWithItsKeys. The revocation applies to that lease, not to
//     another one that was granted with the same id (revokeCommand.Evaluate):
//     TestRegrantedLeaseIsNotRevokedAsExpired.
//   - A leader that hands over refuses renewals before it computes the last checkpoints
//     (Lessor.HandOver): TestRenewalDuringHandoverIsRefused. A deposed leader cannot verify
//     that it leads (Leader.VerifyLeader), which is checked after the renewal:
//     TestUnconfirmedAnswersAreErrors, TestRenewalComesBeforeLeadershipCheck.
//   - A new leader reads the rows after its change of the fence row, so they cannot change
//     afterwards. The clocks start when it serves, when its predecessor can no longer
//     acknowledge renewals (Lessor.Load, Lessor.Start): TestClocksDoNotRunBeforeStart, and in
//     server/replica TestSuccessorKeepsRenewalsOfDeposedLeader.
//
// # Revocation
//
// A lease is revoked in one revision, as in etcd, if it holds at most revocationKeys keys
// (TestSmallLeaseIsRevokedInOneRevision). A larger one is revoked in chunks, each of which is
// a revision (TestLargeLeaseIsRevokedInChunks). The first chunk marks the row of the lease:
// it takes no more keys and no renewals. The last chunk removes the row. A new leader
// continues with a lease that is marked (TestNextLeaderContinuesRevocation). The size of
// chunks adapts to the database, so that other writes wait for about 60 ms. An expired lease
// has one chunk revoked at a time, and then waits for the other leases that are due
// (TestSmallLeasesExpireNextToLargeOne). Checkpoints do not wait for revocations
// (TestCheckpointsDoNotWaitForRevocations).
//
// Start reading at lessor.go and run.go, then calls.go, schedule.go and checkpoint.go.
package lease
