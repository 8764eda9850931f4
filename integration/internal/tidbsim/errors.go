package tidbsim

import (
	"fmt"

	"github.com/go-sql-driver/mysql"
)

// Numbers of TiDB's errors (docs.pingcap.com/tidb/stable/error-codes).
const (
	erTableExists      = 1050
	erUnknownColumn    = 1054
	erDupEntry         = 1062
	erParse            = 1064
	erUnknown          = 1105
	erNoSuchTable      = 1146
	erUnknownVariable  = 1193
	erLockWaitTimeout  = 1205
	erDeadlock         = 1213
	erDataTooLong      = 1406
	erOutOfRange       = 1690
	erTxnTooLarge      = 8004
	erTxnRetryable     = 8022
	erEntryTooLarge    = 8025
	erSchemaChanged    = 8028
	erUnsupportedLevel = 8048
	erPDTimeout        = 9001
	erTiKVTimeout      = 9002
	erTiKVBusy         = 9003
	erResolveTimeout   = 9004
	erRegionUnavail    = 9005
	erGCTooEarly       = 9006
	erWriteConflict    = 9007
)

// number returns an error as the server sends it.
func number(n uint16, format string, args ...any) *mysql.MySQLError {
	e := &mysql.MySQLError{Number: n, Message: fmt.Sprintf(format, args...)}
	copy(e.SQLState[:], "HY000")
	return e
}

// unsupported is the error of what is not simulated.
func unsupported(what string, node any) error {
	return number(erParse, "tidbsim: %s %T is not simulated", what, node)
}

// numberOf returns the number of a server's error, 0 for another error.
func numberOf(err error) uint16 {
	if e, ok := err.(*mysql.MySQLError); ok { //nolint:errorlint // errors of the simulation are never wrapped
		return e.Number
	}
	return 0
}
