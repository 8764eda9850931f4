// Package sqlite is the engine for an SQLite file in write-ahead mode. One connection
// writes; the others read. One store at a time has the file: see lock.go. Commits are written
// to the log in few calls: see vfs.go. checkpoint.go moves the log into the file, and ends the process if either
// cannot be flushed to disk. For a full disk see space.go.
//
// Tests: package engines for what all engines have in common; here plan_test.go (no
// statement scans the table), lock_test.go, mode_test.go (file modes),
// vfs_test.go (writes of the log), fdatasync_linux_test.go and aio_linux_test.go (its flushes), powerloss_linux_test.go
// (what a loss of power and failed flushes leave), checkpoint_test.go and sqlite_test.go
// (durability, several processes, defragmentation).
package sqlite
