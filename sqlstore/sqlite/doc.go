// Package sqlite is the engine for an SQLite file in write-ahead mode. One connection
// writes; the others read. One store at a time has the file: see lock.go. Commits are written
// to the log in few calls: see gather.go.
//
// Tests: package engines for what all engines have in common; here plan_test.go (no
// statement scans the table), lock_test.go, mode_test.go (file modes),
// gather_test.go (writes of the log), sync_linux_test.go (its flushes) and sqlite_test.go
// (durability, several processes, defragmentation).
package sqlite
