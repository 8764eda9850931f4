// Package guard identifies callers and checks their permissions. Users, roles and the
// rules are etcd's: its auth.AuthStore runs here over the rows of the table in auth.Rows.
//
// The package upholds:
//
//   - A write is judged on the sequencer, after every preceding change of users and roles,
//     and a linearizable read once those changes are known.
//   - A change is evaluated on a copy, and takes effect when it is durable. The table
//     stores hashes of passwords and tokens, never the secrets.
//   - A call that does not come from a client, the node itself or another member is
//     unauthenticated.
//
// Start reading at guard.go; DESIGN.md explains the design of tokens and members.
package guard
