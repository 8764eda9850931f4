// Package quota decides whether a write may take space. It owns the size of the table as
// this node knows it, the space quota, and the alarms of the cluster, which are rows.
//
// It upholds, as etcd does:
//
//   - A write that would reach the quota is refused with ErrNoSpace, and the NOSPACE alarm
//     is requested, once. The alarm refuses all further puts and grants until it is
//     disarmed (TestFullDatabaseRefusesPutsUntilDisarmed in server/backend).
//   - The CORRUPT alarm refuses every write with ErrCorrupt.
//   - Alarms loaded from the table never replace newer ones that the leader has committed
//     (TestLoadKeepsNewerAlarms).
//
// Alarms change in the write pipeline only, in a Tx.
package quota
