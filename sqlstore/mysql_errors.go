package sqlstore

import (
	"errors"

	"github.com/go-sql-driver/mysql"
)

// Numbers of server errors, named as in the servers' own lists.
const (
	erDiskFull                 = 1021
	erRecordChanged            = 1020
	erErrorOnWrite             = 1026
	erGetErrno                 = 1030
	erOpenAsReadonly           = 1036
	erConCount                 = 1040
	erOutOfResources           = 1041
	erDBAccessDenied           = 1044
	erAccessDenied             = 1045
	erUnknownCom               = 1047
	erBadDB                    = 1049
	erServerShutdown           = 1053
	erBadField                 = 1054
	erDupEntry                 = 1062
	erUnknownError             = 1105
	erRecordFileFull           = 1114
	erTooBigRow                = 1118
	erHostBlocked              = 1129
	erHostNotPrivileged        = 1130
	erTableAccessDenied        = 1142
	erNoSuchTable              = 1146
	erAborting                 = 1152
	erNetPacketTooLarge        = 1153
	erNetReadError             = 1158
	erNetReadInterrupted       = 1159
	erNetErrorOnWrite          = 1160
	erNetWriteInterrupted      = 1161
	erErrorDuringCommit        = 1180
	erNewAborting              = 1184
	erUnknownSystemVariable    = 1193
	erTransCacheFull           = 1197
	erTooManyUserConns         = 1203
	erLockWaitTimeout          = 1205
	erLockDeadlock             = 1213
	erUserLimitReached         = 1226
	erAccessDeniedNeedPriv     = 1227
	erUnknownStmtHandler       = 1243
	erOptionPreventsStmt       = 1290 // --read-only, --super-read-only
	erQueryInterrupted         = 1317
	erDataTooLong              = 1406
	erTableDefChanged          = 1412
	erBinlogImpossible         = 1598
	erNeedReprepare            = 1615
	erDataOutOfRange           = 1690
	erAccessDeniedNoPass       = 1698
	erReadOnlyTransaction      = 1792
	erMustChangePassword       = 1820
	erReadOnlyMode             = 1836 // InnoDB's, and TiDB's
	erInnoDBReadOnly           = 1874
	erInnoDBForcedRecovery     = 1881
	erLockTimeoutMetadata      = 1907
	erConnectionKilled         = 1927
	erStatementTimeout         = 1969 // MariaDB
	erQueryTimeout             = 3024 // MySQL
	erServerOffline            = 3032
	erRunHook                  = 3100
	erRollbackDuringCommit     = 3101
	erServerUnavailable        = 3168
	erSessionKilled            = 3169
	erGroupConsistency         = 3796
	erGroupBefore              = 3797
	erGroupAfter               = 3798
	erGroupNotAllowed          = 3799
	erClientInteractionTimeout = 4031
	tidbTxnRetry               = 8002
	tidbTxnTooLarge            = 8004
	tidbStaleWrite             = 8005
	tidbSafeRetry              = 8022
	tidbEntryTooLarge          = 8025
	tidbSchemaOutdated         = 8027
	tidbSchemaChanged          = 8028
	tidbNoStartTS              = 8120
	tidbAssertionFailed        = 8141
	tidbPessimisticAbort       = 8147
	tidbPDTimeout              = 9001
	tidbTiKVTimeout            = 9002
	tidbTiKVBusy               = 9003
	tidbResolveLockTimeout     = 9004
	tidbRegionUnavailable      = 9005
	tidbGCTooEarly             = 9006
	tidbWriteConflict          = 9007
	firstErrorOfTiDB           = 8000
	lastErrorOfTiDB            = 9999
	firstErrorOfConnections    = 2000 // numbers a client, or a proxy, makes up
	lastErrorOfConnections     = 2999
)

// mysqlFailures are the errors whose meaning is known. Every other error of the
// server is failureOther: the statement was refused.
//
// What decides is whether the commit can have happened. Engines report most errors
// while a statement is prepared or executed, and undo what it did (InnoDB error
// handling, in MySQL's manual). The few that can come while a transaction commits,
// in a statement that commits by itself too, are failureRetry if the engine says
// that it rolled back, and failureUnknown if it says nothing: asking the chain row
// costs a round trip, a wrong guess costs a write or doubles it.
var mysqlFailures = map[uint16]failure{
	// A row was not as expected; 1690 is what the commit statement raises.
	erDupEntry: failureConflict, erDataOutOfRange: failureConflict,

	// Undone, and worth repeating at once.
	//
	// A deadlock undoes the transaction, a lock wait that took too long the
	// statement only, unless innodb_rollback_on_timeout is set: hence a
	// transaction is rolled back behind it. COMMIT can meet both: it waits for a
	// lock of its own (a backup, or SET GLOBAL read_only), and Galera answers 1213
	// when certification fails. Both roll back first.
	erLockDeadlock: failureRetry, erLockWaitTimeout: failureRetry, erRecordChanged: failureRetry,
	erTableDefChanged: failureRetry, erNeedReprepare: failureRetry, erUnknownStmtHandler: failureRetry,
	// Group Replication: certification failed. All members come to the same
	// verdict, so that it is rolled back everywhere.
	erRollbackDuringCommit: failureRetry,
	// TiDB: rolled back, "the application can safely retry the whole
	// transaction" (Error Codes and Troubleshooting).
	tidbTxnRetry: failureRetry, tidbStaleWrite: failureRetry, tidbSafeRetry: failureRetry,
	tidbSchemaChanged: failureRetry, tidbWriteConflict: failureRetry,

	// Refused before anything was done, because the server takes no writes. While
	// SET GLOBAL read_only waits, a COMMIT is refused and rolled back.
	erOptionPreventsStmt: failureReadOnly, erReadOnlyTransaction: failureReadOnly, erReadOnlyMode: failureReadOnly,
	erOpenAsReadonly: failureReadOnly, erInnoDBReadOnly: failureReadOnly, erInnoDBForcedRecovery: failureReadOnly,

	// Refused before anything was done, because the server is not ready, or full,
	// or its settings keep this user out. 1047 is Galera's "WSREP has not yet
	// prepared node"; 3796 to 3799 are Group Replication's, when a transaction
	// begins and the consistency asked for cannot be had.
	erConCount: failureUnavailable, erOutOfResources: failureUnavailable, erUnknownCom: failureUnavailable,
	erDBAccessDenied: failureUnavailable, erAccessDenied: failureUnavailable, erBadDB: failureUnavailable,
	erDiskFull: failureUnavailable, erRecordFileFull: failureUnavailable, erTableAccessDenied: failureUnavailable,
	erTooManyUserConns: failureUnavailable, erUserLimitReached: failureUnavailable, erAccessDeniedNeedPriv: failureUnavailable,
	erAccessDeniedNoPass: failureUnavailable, erHostBlocked: failureUnavailable,
	erHostNotPrivileged: failureUnavailable, erMustChangePassword: failureUnavailable, erLockTimeoutMetadata: failureUnavailable,
	erServerOffline: failureUnavailable, erServerUnavailable: failureUnavailable,
	erGroupConsistency: failureUnavailable, erGroupBefore: failureUnavailable, erGroupAfter: failureUnavailable, erGroupNotAllowed: failureUnavailable,
	tidbSchemaOutdated: failureUnavailable, tidbNoStartTS: failureUnavailable,

	erTooBigRow: failureTooLarge, erNetPacketTooLarge: failureTooLarge, erDataTooLong: failureTooLarge,
	erTransCacheFull: failureTooLarge, tidbTxnTooLarge: failureTooLarge, tidbEntryTooLarge: failureTooLarge,

	// TiDB refused to commit what contradicts the table: aborted, and it would be
	// again.
	tidbAssertionFailed: failureOther, tidbPessimisticAbort: failureOther,

	// The server, or what it stores in, failed on the way, perhaps while it
	// committed: 1180 is also Galera's when a node loses the cluster, 1026 and 1598
	// are the binary log's, 1105 is what TiDB says of an error that has no number.
	erServerShutdown: failureUnknown, erErrorDuringCommit: failureUnknown, erGetErrno: failureUnknown,
	erErrorOnWrite: failureUnknown, erBinlogImpossible: failureUnknown, erUnknownError: failureUnknown,
	// Group Replication: the hook before the commit failed, as when a member loses
	// the majority. The member rolls back, but it may have sent the transaction to
	// the others, and they may apply it.
	erRunHook: failureUnknown,
	// TiDB closes the connection when it does not know whether it committed, so
	// these should come before, but that was not always so (region errors were
	// taken for a No). A proxy (ProxySQL) has numbers of its own from 9001 on.
	tidbPDTimeout: failureUnknown, tidbTiKVTimeout: failureUnknown, tidbTiKVBusy: failureUnknown,
	tidbResolveLockTimeout: failureUnknown, tidbRegionUnavailable: failureUnknown, tidbGCTooEarly: failureUnknown,
	// Interrupted or killed: mostly before, but perhaps while it committed, or
	// waited for a replica to acknowledge what was committed already.
	erQueryInterrupted: failureUnknown, erConnectionKilled: failureUnknown, erQueryTimeout: failureUnknown,
	erStatementTimeout: failureUnknown, erSessionKilled: failureUnknown, erClientInteractionTimeout: failureUnknown,
	// The connection failed, as the server saw it.
	erAborting: failureUnknown, erNewAborting: failureUnknown,
	erNetReadError: failureUnknown, erNetReadInterrupted: failureUnknown,
	erNetErrorOnWrite: failureUnknown, erNetWriteInterrupted: failureUnknown,
}

// mysqlElsewhere are the errors of a server that is not, or not for long, the one
// to write to; those of failureReadOnly are too.
var mysqlElsewhere = map[uint16]bool{
	erUnknownCom: true, erServerOffline: true, erServerUnavailable: true, erServerShutdown: true, erRunHook: true,
	erGroupConsistency: true, erGroupBefore: true, erGroupAfter: true, erGroupNotAllowed: true,
}

// elsewhere reports whether another server has to be looked for behind err, the
// error of a statement. A connection that was refused needs none: it was not kept.
func elsewhere(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && (mysqlElsewhere[e.Number] || mysqlFailures[e.Number] == failureReadOnly)
}

func (*mysqlDialect) classify(err error) failure {
	var prepare *prepareError
	if errors.As(err, &prepare) {
		err = prepare.err
	}
	if f, ok := classifyCommon(err); ok {
		return f
	}
	if errors.Is(err, mysql.ErrPktTooLarge) {
		return failureTooLarge
	}
	if errors.Is(err, errNotPrimary) {
		return failureReadOnly
	}
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		// The driver's own errors: a broken connection, a broken protocol.
		return failureLost
	}
	if f, ok := mysqlFailures[e.Number]; ok {
		return f
	}
	switch {
	case e.Number >= firstErrorOfTiDB && e.Number <= lastErrorOfTiDB, e.Number >= firstErrorOfConnections && e.Number <= lastErrorOfConnections:
		return failureUnknown
	}
	return failureOther
}
