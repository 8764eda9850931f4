package sqlstore

import (
	"errors"
	"strconv"

	"github.com/go-sql-driver/mysql"
)

// Servers that replicate to each other apply what another one committed a moment
// later than that one, so that a read might miss what was acknowledged: after a
// failover, what the new primary has received and not applied; and wherever
// several servers take writes, what came in at another one. So sessions ask to
// wait until everything from before is applied.
//
//   - Galera: wsrep_sync_wait, for reads and the beginning of transactions. It
//     costs a message to the others and back for each read.
//   - Group Replication with one primary: BEFORE_ON_PRIMARY_FAILOVER, which costs
//     nothing but after a failover. It is MySQL's default since 8.4, not before.
//   - Group Replication with several primaries: BEFORE, for each statement.
//
// MariaDB has the variable without Galera too, where it does nothing; MySQL
// without the plugin does not know the other, and refuses the statement. What one
// product does not know is a comment to the other.
const setReplicatedReads = "SET SESSION autocommit = 1" +
	" /*M!100600 , wsrep_sync_wait = 1, wsrep_dirty_reads = 0 */" +
	" /*!80014 , group_replication_consistency = CASE" +
	" WHEN @@GLOBAL.group_replication_consistency IN ('BEFORE', 'AFTER', 'BEFORE_AND_AFTER') THEN @@GLOBAL.group_replication_consistency" +
	" WHEN @@GLOBAL.group_replication_single_primary_mode THEN 'BEFORE_ON_PRIMARY_FAILOVER' ELSE 'BEFORE' END */"

// checkReplicated judges what setReplicatedReads should have set.
func checkReplicated(vars map[string]string) error {
	const reset = "although every session sets it: a proxy seems to reset sessions"
	if vars["wsrep_on"] == "ON" {
		if n, err := strconv.Atoi(vars["wsrep_sync_wait"]); err != nil || n&1 == 0 {
			return unfit("wsrep_sync_wait is %q "+reset, vars["wsrep_sync_wait"])
		}
		if v := vars["wsrep_dirty_reads"]; v == "ON" {
			return unfit("wsrep_dirty_reads is %q "+reset, v)
		}
	}
	if v := vars["group_replication_consistency"]; v == "EVENTUAL" && vars["group_replication_group_name"] != "" {
		return unfit("group_replication_consistency is %q "+reset, v)
	}
	return nil
}

// mayRefuse reports whether a session can do without what the server refused.
func (*mysqlDialect) mayRefuse(statement string, err error) bool {
	var refused *mysql.MySQLError
	if !errors.As(err, &refused) {
		return false
	}
	switch statement {
	case setTiDBReads:
		return true
	case setReplicatedReads:
		return refused.Number == erUnknownSystemVariable
	}
	return false
}
