// Package export reads the whole table as of one revision: for snapshots, and for the
// hashes by which members and etcd are compared.
//
// It upholds:
//
//   - The content of a revision does not change while it is read, and no transaction stays
//     open. Rows that compaction removes in the meantime do not make a deleted key exist again
//     (TestSnapshotDuringCompaction, TestHashKVDuringCompaction in
//     server/replica).
//   - A read that compaction has overtaken ends with mvcc.ErrCompacted, and never with a
//     part of the content (TestSnapshotOvertakenByCompactionFails).
//   - A table that this process does not serve may be replaced while it is read. Then its snapshot fails
//     (TestReplacedTableIsRefused).
package export
