package sqlstore

import (
	"errors"

	"github.com/go-sql-driver/mysql"
)

// Numbers of server errors, named as in the servers' own lists.
const (
	erOutOfResources        = 1041
	erConCount              = 1040
	erUnknownCom            = 1047 // Galera: the node is not ready
	erDBAccessDenied        = 1044
	erAccessDenied          = 1045
	erBadDB                 = 1049
	erDupEntry              = 1062
	erDiskFull              = 1021
	erRecordChanged         = 1020
	erGetErrno              = 1030
	erHostBlocked           = 1129
	erHostNotPrivileged     = 1130
	erServerShutdown        = 1053
	erRecordFileFull        = 1114
	erTooBigRow             = 1118
	erTableAccessDenied     = 1142
	erNetPacketTooLarge     = 1153
	erErrorDuringCommit     = 1180
	erTooManyUserConns      = 1203
	erUnknownSystemVariable = 1193
	erLockWaitTimeout       = 1205
	erLockDeadlock          = 1213
	erUserLimitReached      = 1226
	erAccessDeniedNeedPriv  = 1227
	erUnknownStmtHandler    = 1243
	erOptionPreventsStmt    = 1290 // --read-only
	erDataTooLong           = 1406
	erNeedReprepare         = 1615
	erDataOutOfRange        = 1690 // what the commit statement raises on purpose
	erAccessDeniedNoPass    = 1698
	erReadOnlyTransaction   = 1792
	erReadOnlyMode          = 1836
	erRunHook               = 3100
	erRollbackDuringCommit  = 3101
	erMustChangePassword    = 1820
	erLockTimeoutMetadata   = 1907
	tidbTxnTooLarge         = 8004
	tidbTxnRetry            = 8002
	tidbSchemaChanged       = 8028
	tidbEntryTooLarge       = 8025
	tidbSchemaOutdated      = 8027
	tidbPDTimeout           = 9001
	tidbTiKVTimeout         = 9002
	tidbTiKVBusy            = 9003
	tidbResolveLockTimeout  = 9004
	tidbRegionUnavailable   = 9005
	tidbWriteConflict       = 9007
	firstErrorOfTiDB        = 8000
	lastErrorOfTiDB         = 9999
	firstErrorOfConnections = 2000 // numbers a client makes up
	lastErrorOfConnections  = 2999
)

// mysqlFailures are the errors whose meaning is known. Every other error of the
// server is failureOther: the statement was refused.
var mysqlFailures = map[uint16]failure{
	erDupEntry: failureConflict, erDataOutOfRange: failureConflict,

	erLockDeadlock: failureRetry, erLockWaitTimeout: failureRetry, erRecordChanged: failureRetry,
	erRollbackDuringCommit: failureRetry, erNeedReprepare: failureRetry, erUnknownStmtHandler: failureRetry,
	tidbWriteConflict: failureRetry, tidbTxnRetry: failureRetry, tidbSchemaChanged: failureRetry,

	erConCount: failureUnavailable, erOutOfResources: failureUnavailable, erUnknownCom: failureUnavailable,
	erDBAccessDenied: failureUnavailable, erAccessDenied: failureUnavailable, erBadDB: failureUnavailable,
	erDiskFull: failureUnavailable, erRecordFileFull: failureUnavailable, erTableAccessDenied: failureUnavailable,
	erTooManyUserConns: failureUnavailable, erUserLimitReached: failureUnavailable, erAccessDeniedNeedPriv: failureUnavailable,
	erOptionPreventsStmt: failureUnavailable, erAccessDeniedNoPass: failureUnavailable, erReadOnlyTransaction: failureUnavailable,
	erReadOnlyMode: failureUnavailable, erRunHook: failureUnavailable, erHostBlocked: failureUnavailable,
	erHostNotPrivileged: failureUnavailable, erMustChangePassword: failureUnavailable, erLockTimeoutMetadata: failureUnavailable,
	tidbSchemaOutdated: failureUnavailable,

	erTooBigRow: failureTooLarge, erNetPacketTooLarge: failureTooLarge, erDataTooLong: failureTooLarge,
	tidbTxnTooLarge: failureTooLarge, tidbEntryTooLarge: failureTooLarge,

	// The server, or what it stores in, stopped on the way.
	erServerShutdown: failureUnknown, erErrorDuringCommit: failureUnknown, erGetErrno: failureUnknown,
	tidbPDTimeout: failureUnknown, tidbTiKVTimeout: failureUnknown, tidbTiKVBusy: failureUnknown,
	tidbResolveLockTimeout: failureUnknown, tidbRegionUnavailable: failureUnknown,
	// Interrupted or killed: mostly before, but perhaps while it committed.
	1317: failureUnknown, 1927: failureUnknown, 1152: failureUnknown, 1184: failureUnknown, 3024: failureUnknown, 1969: failureUnknown, 4031: failureUnknown,
	// The connection failed, as the server saw it.
	1158: failureUnknown, 1159: failureUnknown, 1160: failureUnknown, 1161: failureUnknown,
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
