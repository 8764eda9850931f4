// Package auth says who a caller is and what it may do. Users, roles and the rules
// are etcd's own: its auth.AuthStore runs here over the rows that backend.AuthRows
// has of the table.
//
// What the package upholds:
//
//   - A write is judged on the sequencer, behind every change of users and roles that
//     goes before it, and a linearizable read once it is known which changes those are.
//   - A change is evaluated on a copy, and becomes what everybody is judged by when it
//     is durable. No password, and no token, is in the table: only their hashes.
//   - Who is not known to come from a client, the node itself or another member is
//     nobody.
//
// Start reading at guard.go; DESIGN.md tells why tokens and members are as they are.
package auth
