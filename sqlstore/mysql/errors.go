package mysql

import (
	"errors"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlbrain/sqlbrain/sqlstore/mysql/failover"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// unknownSystemVariable is the number of the error ER_UNKNOWN_SYSTEM_VARIABLE.
const unknownSystemVariable = 1193

// maxPreparedReached is the number of the error ER_MAX_PREPARED_STMT_COUNT_REACHED.
const maxPreparedReached = 1461

// unknownError is the number of the error ER_UNKNOWN_ERROR.
const unknownError = 1105

const (
	firstErrorOfTiDB        = 8000
	lastErrorOfTiDB         = 9999
	firstErrorOfConnections = 2000 // numbers that clients and proxies invent
	lastErrorOfConnections  = 2999
)

// failures are the errors whose meaning is known. Every other error of the
// server is sqldb.FailureOther: the statement was refused.
//
// The meaning depends on whether the commit can have happened. Engines report most errors
// while they prepare or execute a statement, and undo what it did (InnoDB error handling,
// in MySQL's manual). A few errors can come while a transaction commits, or a statement
// that commits by itself. They are sqldb.FailureRetry if the engine reports a rollback,
// otherwise sqldb.FailureUnknown: reading the fence row costs one round trip, while a wrong
// guess loses a write or applies it twice.
var failures = map[uint16]sqldb.Failure{
	// A row was not as expected; 1690 is what the commit statement raises.
	1062: sqldb.FailureConflict, // ER_DUP_ENTRY
	1690: sqldb.FailureConflict, // ER_DATA_OUT_OF_RANGE

	// Undone, and worth repeating at once, as what retry.UndoneByMySQL says is.
	//
	// A lock wait that took too long undoes only the statement, unless innodb_rollback_on_timeout is set; sqlbrain
	// then rolls the transaction back. COMMIT, which waits for the lock of a backup or SET GLOBAL read_only, rolls
	// back first.
	1205: sqldb.FailureRetry, // ER_LOCK_WAIT_TIMEOUT

	// Refused before anything was done, because the server takes no writes. While
	// SET GLOBAL read_only waits, a COMMIT is refused and rolled back.
	1290: sqldb.FailureReadOnly, // ER_OPTION_PREVENTS_STATEMENT (--read-only, --super-read-only)
	1792: sqldb.FailureReadOnly, // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
	1836: sqldb.FailureReadOnly, // ER_READ_ONLY_MODE, InnoDB's, and TiDB's
	1036: sqldb.FailureReadOnly, // ER_OPEN_AS_READONLY
	1874: sqldb.FailureReadOnly, // ER_INNODB_READ_ONLY
	1881: sqldb.FailureReadOnly, // ER_INNODB_FORCED_RECOVERY

	// Refused before anything was done, because the server is not ready. 1047 is Galera's "WSREP has not yet
	// prepared node"; 3796 to 3799 are Group Replication's, when a transaction
	// begins and the consistency asked for cannot be had.
	1040: sqldb.FailureUnavailable, // ER_CON_COUNT_ERROR
	1041: sqldb.FailureUnavailable, // ER_OUT_OF_RESOURCES
	1047: sqldb.FailureUnavailable, // ER_UNKNOWN_COM_ERROR
	1049: sqldb.FailureUnavailable, // ER_BAD_DB_ERROR
	1203: sqldb.FailureUnavailable, // ER_TOO_MANY_USER_CONNECTIONS
	1226: sqldb.FailureUnavailable, // ER_USER_LIMIT_REACHED
	1129: sqldb.FailureUnavailable, // ER_HOST_IS_BLOCKED
	1907: sqldb.FailureUnavailable, // a lock on metadata was not had in time
	3032: sqldb.FailureUnavailable, // ER_SERVER_OFFLINE_MODE
	3168: sqldb.FailureUnavailable, // ER_SERVER_ISNT_AVAILABLE
	3796: sqldb.FailureUnavailable, // Group Replication: consistency
	3797: sqldb.FailureUnavailable, // Group Replication: waiting before the transaction
	3798: sqldb.FailureUnavailable, // Group Replication: waiting after the transaction
	3799: sqldb.FailureUnavailable, // Group Replication: consistency not allowed
	8027: sqldb.FailureUnavailable, // TiDB: schema outdated
	8120: sqldb.FailureUnavailable, // TiDB: no start TS

	// Refused before anything was done: the login, or a right of the user.
	1044: sqldb.FailureDenied, // ER_DBACCESS_DENIED_ERROR
	1045: sqldb.FailureDenied, // ER_ACCESS_DENIED_ERROR
	1142: sqldb.FailureDenied, // ER_TABLEACCESS_DENIED_ERROR
	1227: sqldb.FailureDenied, // ER_SPECIFIC_ACCESS_DENIED_ERROR
	1698: sqldb.FailureDenied, // ER_ACCESS_DENIED_NO_PASSWORD_ERROR
	1130: sqldb.FailureDenied, // ER_HOST_NOT_PRIVILEGED
	1820: sqldb.FailureDenied, // ER_MUST_CHANGE_PASSWORD

	// No space is left. Nothing was done.
	1021: sqldb.FailureFull, // ER_DISK_FULL
	1114: sqldb.FailureFull, // ER_RECORD_FILE_FULL
	3675: sqldb.FailureFull, // ER_DISK_FULL_NOWAIT

	1118: sqldb.FailureTooLarge, // ER_TOO_BIG_ROWSIZE
	1153: sqldb.FailureTooLarge, // ER_NET_PACKET_TOO_LARGE
	1406: sqldb.FailureTooLarge, // ER_DATA_TOO_LONG
	1197: sqldb.FailureTooLarge, // ER_TRANS_CACHE_FULL
	8004: sqldb.FailureTooLarge, // TiDB: transaction too large
	8025: sqldb.FailureTooLarge, // TiDB: entry too large

	// TiDB refused to commit what contradicts the table. The transaction was aborted, and
	// a repetition would be too.
	8141: sqldb.FailureOther, // TiDB: assertion failed
	8147: sqldb.FailureOther, // TiDB: pessimistic abort

	// The server or its storage failed, perhaps while it committed. 1180 also comes from
	// Galera when a node loses the cluster, 1026 and 1598 from the binary log. 1105 is
	// TiDB's for errors without a number.
	1053: sqldb.FailureUnknown, // ER_SERVER_SHUTDOWN
	1180: sqldb.FailureUnknown, // ER_ERROR_DURING_COMMIT
	1030: sqldb.FailureUnknown, // ER_GET_ERRNO
	1026: sqldb.FailureUnknown, // ER_ERROR_ON_WRITE
	1598: sqldb.FailureUnknown, // ER_BINLOG_LOGGING_IMPOSSIBLE
	1105: sqldb.FailureUnknown, // ER_UNKNOWN_ERROR, but see Classify
	// Group Replication: the hook before the commit failed, as when a member loses
	// the majority. The member rolls back, but it may have sent the transaction to
	// the others, and they may apply it.
	3100: sqldb.FailureUnknown, // ER_RUN_HOOK_ERROR
	// TiDB closes the connection if it does not know whether it committed, so these errors
	// should only come before a commit. Older versions did not keep to that (they took region
	// errors for a rollback). The proxy ProxySQL also uses numbers starting at 9001.
	9001: sqldb.FailureUnknown, // TiDB: PD server timeout
	9002: sqldb.FailureUnknown, // TiDB: TiKV server timeout
	9003: sqldb.FailureUnknown, // TiDB: TiKV server is busy
	9004: sqldb.FailureUnknown, // TiDB: resolve lock timeout
	9005: sqldb.FailureUnknown, // TiDB: region is unavailable
	9006: sqldb.FailureUnknown, // TiDB: GC life time is shorter than transaction duration
	8055: sqldb.FailureUnknown, // TiDB: snapshot is older than GC safe point
	// Interrupted or killed: mostly before the commit, but perhaps during it, or while the
	// server waited for a replica to acknowledge it.
	1317: sqldb.FailureUnknown, // ER_QUERY_INTERRUPTED
	1927: sqldb.FailureUnknown, // ER_CONNECTION_KILLED, MariaDB
	3024: sqldb.FailureUnknown, // ER_QUERY_TIMEOUT, MySQL
	1969: sqldb.FailureUnknown, // ER_STATEMENT_TIMEOUT, MariaDB
	3169: sqldb.FailureUnknown, // ER_SESSION_WAS_KILLED
	4031: sqldb.FailureUnknown, // ER_CLIENT_INTERACTION_TIMEOUT
	// The connection failed, as the server saw it.
	1152: sqldb.FailureUnknown, // ER_ABORTING_CONNECTION
	1184: sqldb.FailureUnknown, // ER_NEW_ABORTING_CONNECTION
	1158: sqldb.FailureUnknown, // ER_NET_READ_ERROR
	1159: sqldb.FailureUnknown, // ER_NET_READ_INTERRUPTED
	1160: sqldb.FailureUnknown, // ER_NET_ERROR_ON_WRITE
	1161: sqldb.FailureUnknown, // ER_NET_WRITE_INTERRUPTED
}

// leaving are the errors of a server that is not, or soon will not be, the primary. All
// errors of sqldb.FailureReadOnly have that meaning as well.
var leaving = map[uint16]bool{
	1047: true, // ER_UNKNOWN_COM_ERROR
	3032: true, // ER_SERVER_OFFLINE_MODE
	3168: true, // ER_SERVER_ISNT_AVAILABLE
	1053: true, // ER_SERVER_SHUTDOWN
	3100: true, // ER_RUN_HOOK_ERROR
	3796: true, // Group Replication: consistency
	3797: true, // Group Replication: waiting before the transaction
	3798: true, // Group Replication: waiting after the transaction
	3799: true, // Group Replication: consistency not allowed
}

// elsewhere reports whether err, the error of a statement, means that another server may
// be the primary. The error of a refused connection does not: the pool did not keep it.
func elsewhere(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && (leaving[e.Number] || failures[e.Number] == sqldb.FailureReadOnly)
}

// tooManyPrepared reports whether the server refused to prepare a statement because all its clients
// together have max_prepared_stmt_count statements. It executes text.
func tooManyPrepared(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == maxPreparedReached
}

// passing are TiDB's errors of a read whose storage did not answer in time, or whose snapshot is
// too old. A read of the same rows a moment later may succeed.
var passing = map[uint16]bool{
	9001: true, // TiDB: PD server timeout
	9002: true, // TiDB: TiKV server timeout
	9003: true, // TiDB: TiKV server is busy
	9004: true, // TiDB: resolve lock timeout
	9005: true, // TiDB: region is unavailable
	9006: true, // TiDB: GC life time is shorter than transaction duration
	8055: true, // TiDB: snapshot is older than GC safe point
}

// repeatable is in the text of TiDB's errors after which a client may repeat what it did, with
// or without a number (TxnRetryableMark in pkg/kv).
const repeatable = "[try again later]"

// Retryable implements sqldb.Engine.
func (*engine) Retryable(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && (passing[e.Number] || e.Number == unknownError && strings.Contains(e.Message, repeatable))
}

// Classify implements sqldb.Engine.
func (*engine) Classify(err error) sqldb.Failure {
	if errors.Is(err, mysql.ErrPktTooLarge) {
		return sqldb.FailureTooLarge
	}
	if errors.Is(err, failover.ErrNotPrimary) {
		return sqldb.FailureReadOnly
	}
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		// The driver's own errors: a broken connection, a broken protocol.
		return sqldb.FailureLost
	}
	if e.Number == unknownError && strings.Contains(e.Message, "max_allowed_packet") {
		return sqldb.FailureTooLarge // a value of a prepared statement, which was not executed
	}
	if f, ok := failures[e.Number]; ok {
		return f
	}
	switch {
	case retry.UndoneByMySQL(e.Number):
		return sqldb.FailureRetry
	case e.Number >= firstErrorOfTiDB && e.Number <= lastErrorOfTiDB, e.Number >= firstErrorOfConnections &&
		e.Number <= lastErrorOfConnections:
		return sqldb.FailureUnknown
	}
	return sqldb.FailureOther
}
