package mysql

import (
	"errors"
	"strconv"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// Servers that replicate to each other apply each other's commits with a delay, so a read
// might miss acknowledged writes: after a failover, those that the new primary has received
// but not applied; and where several servers accept writes, those made on another one.
// Therefore sessions ask to wait until all earlier commits are applied.
//
//   - Galera: wsrep_sync_wait, for reads and the beginning of transactions. It
//     costs a message to the others and back for each read.
//   - Group Replication with one primary: BEFORE_ON_PRIMARY_FAILOVER, which only costs
//     time after a failover. It is MySQL's default since 8.4.
//   - Group Replication with several primaries: BEFORE, for each statement.
//
// MariaDB has its variable without Galera too, where it does nothing. MySQL without the
// plugin does not know the other variable and refuses the statement. Each product reads
// the settings of the other as a comment.
const setReplicatedReads = "SET SESSION autocommit = 1" +
	" /*M!100600 , wsrep_sync_wait = 1, wsrep_dirty_reads = 0 */" +
	" /*!80014 , group_replication_consistency = CASE" +
	" WHEN @@GLOBAL.group_replication_consistency IN ('BEFORE', 'AFTER', 'BEFORE_AND_AFTER') THEN " +
	"@@GLOBAL.group_replication_consistency" +
	" WHEN @@GLOBAL.group_replication_single_primary_mode THEN 'BEFORE_ON_PRIMARY_FAILOVER' ELSE 'BEFORE' END */"

// checkReplicated verifies the settings made by setReplicatedReads.
func checkReplicated(vars map[string]string) error {
	if vars["wsrep_on"] == "ON" {
		if n, err := strconv.Atoi(vars["wsrep_sync_wait"]); err != nil || n&1 == 0 {
			return sqldb.Unfit("wsrep_sync_wait is %q "+wasReset, vars["wsrep_sync_wait"])
		}
		if v := vars["wsrep_dirty_reads"]; v == "ON" {
			return sqldb.Unfit("wsrep_dirty_reads is %q "+wasReset, v)
		}
	}
	if v := vars["group_replication_consistency"]; v == "EVENTUAL" && vars["group_replication_group_name"] != "" {
		return sqldb.Unfit("group_replication_consistency is %q "+wasReset, v)
	}
	return nil
}

// mayRefuse reports whether a session can do without what the server refused.
func mayRefuse(statement string, err error) bool {
	var refused *mysql.MySQLError
	if !errors.As(err, &refused) {
		return false
	}
	switch statement {
	case setTiDBReads, setIdle, setTiDBIdle:
		return true
	case setReplicatedReads:
		return refused.Number == unknownSystemVariable
	}
	return false
}
