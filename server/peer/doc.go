// Package peer is how the nodes of one cluster talk to each other: a small gRPC
// service, sqlbrain.Peer, the client for it, and a pool of connections.
//
// The service has two calls, made of etcd's messages:
//
//   - Position asks a node where the cluster stands. Only the leader answers, and
//     only once it has confirmed that it still is.
//   - Follow is the commit feed: everything that was committed from a revision on,
//     in order, in whole revisions, for as long as the node leads.
//
// What the package upholds:
//
//   - A feed is exact: every event from the start on, once, in order, or it ends
//     with the compact revision.
//   - Progress never overtakes: an Update's revision covers nothing but events
//     that were handed out with it or before.
//   - A slow follower holds up nobody and fills no memory: what it has not taken
//     is read again from the leader's history.
//   - Silence is noticed: the leader sends something every 200 ms, and a feed that
//     hears nothing for Config.Silence ends.
//   - Members talk to members only: both sides of a connection require TLS 1.3 and the
//     certificate of a current member; the dialer requires the one it wants to reach.
//   - A node is never taken for another: each call names the cluster and the
//     member it is meant for, and a node that is not meant refuses it. Addresses
//     outlive processes, and a write must not land in somebody else's cluster.
//   - Evidence is told from guesses: ErrRefused says that nothing listens at a
//     member's address; timeouts and broken connections say no such thing.
//
// Start reading at service.go and feed.go; for authentication at security.go.
package peer
