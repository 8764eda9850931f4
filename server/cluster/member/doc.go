// Package member keeps the rows of a cluster's members, decides which of their
// processes are alive, and elects the one that leads. Each node that shares the database
// has a row in the table; a Registry keeps it up to date and knows the others.
//
// The package upholds, and the named tests check:
//
//   - One process is the member of a name; an older one finds out, and ends (join_test.go).
//   - An id names the same member permanently (join_test.go, change_test.go).
//   - A process counts as gone only by evidence in the table: missing heartbeats,
//     unanswered challenges, or its own statement (run_test.go, challenge_test.go, contest_test.go).
//   - Each grant of the lock is led with once, by one process, which stops once another
//     one was granted the lock (lead_test.go, transfer_test.go, history_test.go).
//
// The lock is for liveness only. The fence row decides which process may commit: taking
// the lock too early costs a pause, never a write. ../DESIGN.md has the lock row, the rule
// and the reasons.
//
// # Rows
//
// A member's row is named after the member, so its id is the same after every
// restart. Each start writes a new incarnation into it. A process that starts under
// the name of a running member is refused with ErrRunning, unless it is
// forced; that happens to two nodes that were both left with the default name. A
// process whose row was taken over finds an incarnation that is not its own when it
// next looks, and ends with ErrReplaced.
//
// A row is plain JSON, compared and swapped as a whole, which is one statement. A process writes its own row alone, and
// raises the heartbeat with each write. Data that concerns other members (ids, peer URLs, membership) is changed
// together with a row that counts such changes. So changes happen one after the other, and a late packet of one
// conflicts.
//
// # Alive
//
// No two clocks are compared. A process raises the number in its row at every heartbeat;
// another one believes it alive while it sees the number change, and counts it as not alive
// after three heartbeats without a change, by its own monotonic clock. Time in which it
// could not read the table does not count: after an outage of the database all
// members are as they were. A row seen for the first time counts as alive for as
// long, unless its process said that it stopped.
//
// # Lock
//
// One row names the process that is to lead. Another one may swap the row when it was released, when its holder was
// replaced or removed, and when the holder left a challenge in the row unanswered (contest.go). Followers that hear the
// leader otherwise (RecordHeartbeat) do not challenge it, so that an idle cluster writes heartbeats only.
//
// # Challenges of members
//
// A process that starts under the name of a member that did not leave, and "sqlbrain recover", have to know whether that
// member's process runs. They write challenges into its row (challenge.go). Every process polls its own row, and answers
// a challenge with a heartbeat at once. A process that leaves several challenges in a row unanswered is silent. Each
// challenge is a write, so that a database that takes no writes makes no process silent.
//
// # Certificates
//
// A row has the fingerprint of the certificate that the member's process shows to
// other members. A process that starts publishes it as it joins, and with each
// heartbeat. Other members learn of a new one at their next poll, because a join
// is a change, or at once by Refresh, when they meet an unknown certificate.
//
// # Protocols
//
// A row has the number of its process's protocol (protocol.go). A process does not join while one runs that has
// another number.
//
// # Peer URLs
//
// A process joins only with peer URLs that others can reach, and that no other running
// process advertises. Two URLs that differ in the scheme only are the same.
//
// # Changes
//
// Members are nodes that share a database. None stores data locally, there is
// no quorum, and a node that starts is a member. So etcd's calls mean:
//
//   - Add registers a member that has not started: an id and peer URLs. The first
//     node that starts with these peer URLs, and under a name that is not a member's yet,
//     takes it over. A node may also start without having been added. As there is no quorum to
//     protect, any number may be added before they start; etcd refuses the
//     second. Learners are refused: a node that reads the database itself has
//     nothing to catch up with, and none is ever promoted.
//   - Remove deletes a member's row. Its process, if one runs, finds that out at
//     its next heartbeat and ends with ErrRemoved; if it led, another node takes
//     over. The procedure of etcd, adding a new member and wiping the old one's
//     data, is a restart here: a process that is started under the name joins as a new
//     member with a new id. An id that was removed never comes back. To take a node
//     out of service, stop its process. The last member known to be alive cannot be
//     removed, as in etcd: no member would be left to serve.
//   - Update sets the peer URLs at which the other members reach a member, started or not,
//     after their next poll. As in etcd the process does not listen elsewhere
//     for that. The URLs are valid until the member is started with other peer URLs than at
//     its last start.
//   - Promote always fails, because there are no learners.
//
// Start reading at Join in join.go, then Registry.Run in run.go, elector.go, contest.go, view.go
// and change.go.
package member
