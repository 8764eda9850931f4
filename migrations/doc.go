// Package migrations owns the schema: numbered SQL files for each dialect, and
// the code that applies them and checks what a database holds.
//
// The files are plain golang-migrate sources. The stock tool can be pointed at
// the same folder and the two can be mixed, because both keep their state in
// schema_migrations:
//
//	migrate -path migrations/mysql -database 'mysql://user:pw@tcp(host:3306)/db' up
//
// Guarantees:
//
//   - A table named object that these files did not create is never touched.
//   - Several processes may call Up at once; one works, the others wait for it.
//   - A schema newer than the binary is refused, never "repaired".
//   - A *sql.DB that was handed in is neither closed nor reconfigured.
//
// Each MySQL file holds exactly one statement: DDL commits by itself there, so
// that a file is applied whole or not at all, and the connection needs no
// multiStatements. On SQLite a whole Up or Down is one transaction.
//
// Start reading at migrations.go; inspect.go says what a database holds, and
// mysql.go and sqlite.go are the two dialects.
package migrations
