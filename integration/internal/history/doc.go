// Package history checks whether a store kept its promises. It records the requests
// of clients and their answers, and verifies them against the store's own account,
// a watch that starts at the first revision.
//
// A Verifier checks these rules:
//
//   - Revisions are contiguous: each exactly once, in order, with at least one
//     event, and all the events of one transaction in one revision.
//   - Every revision is exactly the effect of one request on the state before
//     it: nothing is half applied, applied twice, or from nowhere.
//   - A request that was acknowledged with a revision has that revision. One
//     with an unknown outcome has one or none. One that was refused has none.
//   - Real time is respected: everything that a client received before a request
//     began is older than the request.
//   - A read shows exactly the state at the revision in its header, or at the one
//     it asked for; versions, create revisions, leases and prev_kv included.
//   - All of an answer is what etcd answers on that state.
//   - What was compacted can no longer be read, and nothing else is refused as compacted.
//   - A watch shows exactly the events of its range, in order, each once.
//   - Leases live from their grant to their revocation and hold the keys put with
//     them.
//
// The verifier rests on the requests being recognisable: each recorded put has
// a value that starts with the token of its request. Deletes without a put are
// matched by what they delete.
//
// Start reading at op.go and verifier.go; recorder.go and account.go are where the two sides of the comparison come
// from. What etcd answers on a state is decided in server/mvcc/model.
package history
