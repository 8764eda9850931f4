// Package feed sends what the leader commits to its followers: the service
// sqlbrain.Peer of feedpb/peer.proto, and the client for it. Package link connects the
// members and authenticates them.
//
// The service has three calls:
//
//   - Position returns where the cluster stands. Only the leader answers, and only
//     after it has confirmed that it still leads.
//   - Follow is the commit feed: all events starting at a revision, in order, in whole
//     revisions, for as long as the member leads.
//   - Figures returns what any member's process measures, for the console.
//
// Invariants:
//
//   - A feed is exact. It has every event from its start, once, in order, or ends with
//     the compact revision (TestFeedsFromAnywhereAreExact, TestFeedFromACompactedRevisionFails).
//   - Progress never overtakes. An Update's revision covers only events that were sent
//     in it or before it (TestProgressNeverOvertakesEvents).
//   - A slow follower delays no other component and costs bounded memory on the leader,
//     which reads the rest from history later (TestASlowFollowerReadsFromHistory).
//   - Messages have about 1 MiB at most, or one event (TestLargeRevisionsComeInFragments).
//   - Silence is noticed. The leader sends an update at least every 500 ms, and a feed that
//     receives nothing for 1.5 s ends (TestSilenceEndsAFeed).
//   - Members of different protocols refuse a feed (TestMembersOfOtherProtocolsRefuseAFeed).
//
// Start reading at service.go, follow.go (the leader) and feed.go (the follower).
package feed

//go:generate go -C ../../../integration run ./cmd/protogo server/cluster/feed/feedpb/peer.proto
