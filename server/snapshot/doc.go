// Package snapshot writes and reads etcd's snapshot files: the bbolt database that
// etcd 3.7 keeps on disk, followed by the SHA-256 of all its bytes. Maintenance.Snapshot
// sends such a file, `etcdutl snapshot restore` starts an etcd from it, and
// `sqlbrain restore` fills an empty table from it.
//
// It upholds:
//
//   - A file holds the state of one revision: every version that is visible at a revision
//     after the compact revision, byte for byte as etcd would have stored it, so that
//     HashKV is equal; the leases of keys; users, roles; alarms.
//   - Memory is bounded for every table size. Versions arrive in the order of keys and
//     are stored in the order of revisions: they are sorted in runs on disk.
//   - Where the system allows it, temporary files are unlinked as soon as they are open,
//     and Close removes their directory. So a killed process leaves only an empty directory.
//   - Input is not trusted: a damaged file causes an error, never a panic or an endless
//     walk. Pages are checked before bbolt reads them (pages.go).
//
// The package does not use rows or SQL: package replica supplies and accepts versions.
//
// Start reading at layout.go, then maker.go and write.go for writing, and load.go for
// reading.
package snapshot
