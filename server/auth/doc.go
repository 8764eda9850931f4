// Package auth has what the layers that read and write need for authorization: the rows of
// users, roles and tokens, the Store that answers and executes requests for them, and the
// permit of a request.
//
// The package upholds:
//
//   - A request without a permit is refused: the zero Permit allows nothing
//     (permit_test.go; every entry point of a node: permit_test.go in server/replica).
//   - Rows never change. A change makes new rows with the next version (rows_test.go).
//   - Loaded rows belong to one version, and never replace newer ones (users_test.go).
//   - The row of a token stays for the time to live of the token, on every leader
//     (tokens_test.go).
//
// It does not interpret the rows. Package guard does, and makes the permits. Rows change in
// the write pipeline only, in a Tx.
package auth
