// Package quota decides whether a write may take space. It owns the size of the table as
// this node knows it, the space quota, whether the disk is full, and the alarms of the
// cluster, which are rows.
//
// It upholds, as etcd does:
//
//   - A write that would reach the quota is refused with ErrNoSpace, and the NOSPACE alarm
//     is requested, once. The alarm refuses all further puts and grants until it is
//     disarmed (TestFullDatabaseRefusesPutsUntilDisarmed in server/replica).
//   - The CORRUPT alarm refuses every write with ErrCorrupt.
//   - Alarms loaded from the table never replace newer ones that the leader has committed
//     (TestLoadKeepsNewerAlarms).
//
// While the disk of the database is full, this node has a NOSPACE alarm that is not in the
// table, puts and grants are refused, and the last half of the disk's reserve is for
// compaction. The alarm ends when there is space (TestFullDiskRaisesAlarmUntilItHasSpace,
// TestFullDiskTakesDeletesAndCompaction in server/replica).
//
// How much the table takes is the same on every engine: the bytes of all keys and values. Commits count those of index,
// version, log, lease and attachment rows (Count), so that the sum is exact after each of them; compaction counts
// what it removes; Refresh adds up the few others. A table whose bytes were never counted is scanned by its leader
// (Scan) after a restore, say. Until then the engine's own figure counts. Once a day a scan corrects what something
// else has changed. (TestCountOfBytesIsExact, TestScanCountsWhileEverythingChanges in server/replica.)
//
// Other alarms change in the write pipeline only, in a Tx.
package quota
