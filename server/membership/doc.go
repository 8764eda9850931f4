// Package membership keeps the list of a cluster's members: each node that shares
// the database has a row in the table, and a Registry that keeps it up to date
// and knows the others.
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
// A row is plain JSON, compared and swapped as a whole. The marks of package
// coder would save MySQL round trips once per heartbeat, which nobody would
// notice, and would cost every earlier row a second format: what is there reads
// only {"id":…}. A process writes its own row alone, and raises the heartbeat with
// each write. What concerns others (ids, peer URLs, who is a member) is changed together
// with a row that counts such changes, so that they happen one after the
// other, and a late packet of one never finds what it expects.
//
// # Alive
//
// Nobody compares clocks. A member raises the number in its row at every heartbeat; another
// believes it alive while it sees the number change, and gives it up after three
// heartbeats without a change, by its own monotonic clock. Time in which it
// could not read the table does not count: after an outage of the database all
// members are as they were. A row seen for the first time counts as alive for as
// long, unless its process said that it stopped.
//
// # Challenges
//
// Heartbeats are rare, so that an idle cluster writes little. A process that has to
// know sooner whether another one runs writes a challenge into that one's row. Every
// process looks at its own row, and at the row that counts changes, at each answer
// interval. It answers a challenge with a heartbeat at once, and reads all rows if there was
// a change. A process that leaves several
// challenges in a row unanswered is silent. Each challenge is a write, so that a
// database that takes no writes makes no process silent. Challenges are used before a
// process takes over a member that did not leave, before a follower believes that the
// leader's process is gone, and before "sqlbrain recover" writes.
//
// # Certificates
//
// A row has the fingerprint of the certificate that the member's process shows to
// other members. A process that starts publishes it as it joins, and with each
// heartbeat. Other members learn of a new one at their next answer interval, as a
// join is a change, or at once by Refresh, when they meet a certificate that they do not know. Rows of older versions have
// no fingerprint.
//
// # Peer URLs
//
// A process joins only with peer URLs that others can reach, and that no other running
// process advertises. Two URLs that differ in the scheme only are the same.
//
// # Changes
//
// Members are nodes that share a database. None holds data of its own, there is
// no quorum among them, and a node that starts is a member. So etcd's calls mean:
//
//   - Add registers a member that has not started: an id and peer URLs. The first
//     node that starts with these peer URLs, and under a name that is not a member's yet,
//     takes it over. A node may also start without having been added. As there is no quorum to
//     protect, any number may be added before they start; etcd refuses the
//     second. Learners are refused: a node that reads the database itself has
//     nothing to catch up with, and none is ever promoted.
//   - Remove deletes a member's row. Its process, if one runs, finds that out at
//     its next heartbeat and ends with ErrRemoved; if it led, another node takes
//     over. What etcd asks for then, adding a new member and wiping the old one's
//     data, is a restart here: a process that is started under the name joins as a new
//     member with a new id. An id that was removed never comes back. Whoever wants a node
//     gone stops its process. The last member known to be alive cannot be
//     removed, as in etcd: nobody would be left to serve.
//   - Update sets the peer URLs at which the others reach a member, started or not, from
//     their next look at the table on. As in etcd the process does not listen elsewhere for
//     that. It holds until the member is started with other peer URLs
//     than at its last start.
//   - Promote always fails, because there are no learners.
//
// Start reading at Join in join.go, then Registry.Run in heartbeat.go, view.go and
// change.go.
package membership
