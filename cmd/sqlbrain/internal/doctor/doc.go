// Package doctor examines a database and says whether sqlbrain can live on it.
//
// Guarantees:
//
//   - It changes nothing: whether a statement is permitted is found out with
//     statements that touch no row.
//   - One failing check does not keep the others from running; only a database
//     that cannot be reached ends the examination.
//   - Every finding that is not ok says what to do.
//
// Start reading at doctor.go; mysql.go and sqlite.go hold the checks of the two
// dialects, report.go what is printed.
package doctor
