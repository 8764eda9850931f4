// Package snapshot writes and reads etcd's snapshot files: the bbolt database that
// an etcd 3.7 has on its disk, and behind it the SHA-256 of all its bytes. What
// Maintenance.Snapshot sends is such a file, `etcdutl snapshot restore` starts an
// etcd from it, and `sqlbrain restore` fills an empty table from one.
//
// It upholds:
//
//   - A file holds the state of one revision: every version that a revision behind the
//     compact revision sees, byte for byte as etcd would have stored it, so that HashKV
//     is the same; the leases that keys have; users, roles; alarms.
//   - Memory is bounded whatever the table's size. Versions come in the order of keys and
//     are stored in the order of revisions: they are sorted in runs on disk.
//   - Temporary files have no name any more as soon as they are open, where the
//     system allows that, and their directory goes with Close. So nothing is left even
//     of a process that was killed, but an empty directory.
//   - What is read is not trusted: a damaged file is an error, not a panic, and no walk without end.
//     Pages are looked at before bbolt does (pages.go).
//
// It knows nothing of rows and SQL: package backend hands out versions, and takes
// them.
//
// Start reading at layout.go, then maker.go and write.go for the one way, and load.go
// for the other.
package snapshot
