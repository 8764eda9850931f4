// Package kine reads the command line of kine, and says what it means for sqlbrain. It imports the keys of kine's table.
//
// Guarantees:
//
//   - Every flag and variable of kine 0.16 is known. It sets a setting, or has no meaning here; then a note says why.
//   - An endpoint of an engine that sqlbrain does not have is refused with a list of those that it has.
//   - An import is complete, or no server serves the store. From its beginning no kine can write.
//   - No error, note or text of this package holds a password.
//
// Start reading at flags.go, which has the table of flags. translate.go makes settings of them, endpoint.go and dsn.go
// read --endpoint, table.go looks for kine's own data, and adopt.go imports it.
package kine
