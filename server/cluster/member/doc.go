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
// of liveness and the reasons.
//
// # Rows
//
// A member's row is named after the member, so its id is the same after every
// restart. Each start writes a new incarnation into it. A process whose row was taken over finds an incarnation that is
// not its own when it next polls, and ends with ErrReplaced. Two nodes that were both left with the default name
// are one member: the second one is refused with ErrRunning.
//
// A row is plain JSON, compared and swapped as a whole, which is one statement. A process writes its own row alone, and
// raises the heartbeat with each write. Data that concerns other members (ids, peer URLs, membership) is changed
// together with a row that counts such changes. So changes happen one after the other, and a late packet of one
// conflicts.
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
//     its next poll and ends with ErrRemoved; if it led, another node takes
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
