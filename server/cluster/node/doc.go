// Package node makes one node of several that share a database: it campaigns
// for the leadership, follows the node that has it, and knows where to send requests that
// only the leader can answer.
//
// The package upholds:
//
//   - A node leads or follows, never both: what it knows of the table is changed
//     by the leadership, or by the feed and the log, and one ends before the other
//     begins (role.go).
//   - A follower misses nothing: the feed continues after what it has, and whatever
//     is wrong with the feed, the log rows have it too (follow.go).
//   - Only evidence replaces a leader: one that is not heard is challenged through the
//     database, and its lock is taken if it does not answer (package member). Either way
//     the fence row decides which node may write, and the read lease which one may answer
//     (package replica), so a wrong guess costs a pause, and no data.
//   - Losing the leadership, the lock, or the database never ends the process.
//
// Start reading at node.go.
package node
