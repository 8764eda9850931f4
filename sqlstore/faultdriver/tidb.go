package faultdriver

import "github.com/go-sql-driver/mysql"

// Outcome is what an error of a commit says about it.
type Outcome string

// The outcomes of a commit that failed.
const (
	RolledBack Outcome = "rolled back, a repetition may succeed"
	Refused    Outcome = "rolled back, a repetition fails too"
	TooLarge   Outcome = "rolled back, a repetition fails too: it is too large"
	NotReady   Outcome = "rolled back, the server is not ready"
	InDoubt    Outcome = "rolled back or committed"
)

// TiDBFault is a failure that a TiDB reports.
type TiDBFault struct {
	Name  string
	Fault Fault
	// Commit is what the error says of a commit that it answers.
	Commit Outcome
	// Retryable: a read that it answers may succeed after a pause.
	Retryable bool
}

// TiDBFaults returns the failures of TiDB, with the numbers and texts of its documentation
// (docs.pingcap.com/tidb/stable/error-codes) and source. Every other engine reports them as unknown errors.
func TiDBFaults() []TiDBFault {
	return []TiDBFault{
		tidbError(8002, "can not retry select for update statement", RolledBack),
		tidbError(8005, "Write Conflict, stale write [try again later]", RolledBack),
		tidbError(8022, "Error: KV error safe to retry [try again later]", RolledBack),
		tidbError(8028, "Information schema is changed during the execution of the statement. [try again later]", RolledBack),
		tidbError(9007, "Write conflict, reason=Optimistic [try again later]", RolledBack),
		tidbError(1205, "Lock wait timeout exceeded; try restarting transaction", RolledBack),
		tidbError(1213, "Deadlock found when trying to get lock; try restarting transaction", RolledBack),
		tidbError(8004, "Transaction is too large", TooLarge),
		tidbError(8025, "entry too large", TooLarge),
		tidbError(8141, "assertion failed", Refused),
		tidbError(8147, "transaction aborted because lazy uniqueness check is enabled", Refused),
		tidbError(8027, "Information schema is out of date", NotReady),
		tidbError(8120, "start tso timeout", NotReady),
		// A commit that met one of these was rolled back, unless an older TiDB took an error of a region for a rollback.
		passing(tidbError(9001, "PD server timeout", InDoubt)),
		passing(tidbError(9002, "TiKV server timeout", InDoubt)),
		passing(tidbError(9003, "TiKV server is busy", InDoubt)),
		passing(tidbError(9004, "Resolve lock timeout", InDoubt)),
		passing(tidbError(9005, "Region is unavailable", InDoubt)),
		passing(tidbError(9006, "GC life time is shorter than transaction duration", InDoubt)),
		passing(tidbError(8055, "snapshot is older than GC safe point", InDoubt)),
		passing(tidbError(1105, "Information schema is changed. [try again later]", InDoubt)),
		// The locks of a transaction vanished when a TiKV node failed (pingcap/tidb#60679).
		tidbError(1105, "tikv aborts txn: PessimisticLockNotFound { reason: LockMissingAmendFail }", InDoubt),
		// TiDB closes the connection if it does not know whether it committed (ErrResultUndetermined).
		{Name: "undetermined, not committed", Fault: Fault{Before: mysql.ErrInvalidConn, Cut: true}, Commit: InDoubt},
		{Name: "undetermined, committed", Fault: Fault{After: mysql.ErrInvalidConn, Cut: true}, Commit: InDoubt},
	}
}

func tidbError(number uint16, message string, commit Outcome) TiDBFault {
	return TiDBFault{Name: message, Fault: Fault{Before: &mysql.MySQLError{Number: number, Message: message}},
		Commit: commit}
}

func passing(f TiDBFault) TiDBFault {
	f.Retryable = true
	return f
}
