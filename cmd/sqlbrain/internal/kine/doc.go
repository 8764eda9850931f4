// Package kine reads the command line of kine, and says what it means for sqlbrain. It imports the keys of kine's
// table.
//
// Guarantees:
//
//   - Every flag and variable of kine 0.16 is known. It sets a setting, or has no meaning here; then a note says why.
//   - An endpoint of an engine that sqlbrain does not have is refused with a list of those that it has.
//   - An import is complete, or no server serves the store. One that ended is repeated only on demand.
//   - No kine can use a database that is served, and none that is noticed is stopped from using its own.
//   - No error, note or text of this package holds a password.
//
// Start reading at flags.go, which has the table of flags. translate.go makes settings of them, endpoint.go and dsn.go
// read --endpoint, table.go has the states of kine's table, claim.go takes it from kine, adopt.go imports it, and
// writeback.go fills it for the way back.
package kine
