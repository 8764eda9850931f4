// Package cluster makes one node of several that share a database: it campaigns
// for the leadership, follows whoever has it, and knows where requests go that only
// the leader can answer.
//
// What the package upholds:
//
//   - A node leads or follows, never both: what it knows of the table is changed
//     by the leadership, or by the feed and the log, and one ends before the other
//     begins (role.go).
//   - A follower misses nothing: the feed goes on behind what it has, and whatever
//     is wrong with the feed, the log rows have it too (follow.go).
//   - Evidence, not guesses, deposes early: a leader whose address refuses
//     connections is challenged through the database, and reported dead if it neither
//     answers nor renews its lock (suspect.go). One whose address is silent keeps the
//     lock until it expires. Either way the chain row decides who may write, and the
//     read lease who may answer (package backend), so a wrong guess costs a
//     moment, not data.
//   - Losing the leadership, the lock, or the database never ends the process.
//
// Start reading at node.go.
package cluster
