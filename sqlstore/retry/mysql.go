package retry

// undone are the errors after which MySQL, MariaDB or TiDB has undone a statement that commits by itself, or the
// transaction that it belongs to, and after which the same may succeed at once. An error of COMMIT is one of them
// only if the engine rolls back first.
var undone = map[uint16]bool{
	1213: true, // ER_LOCK_DEADLOCK; Galera: certification failed, or another member's CREATE TABLE arrived
	1020: true, // ER_CHECKREAD
	1412: true, // ER_TABLE_DEF_CHANGED
	1615: true, // ER_NEED_REPREPARE
	1243: true, // ER_UNKNOWN_STMT_HANDLER
	// Group Replication: certification failed. All members reach the same decision, so
	// the transaction is rolled back everywhere.
	3101: true, // ER_TRANSACTION_ROLLBACK_DURING_COMMIT
	// TiDB: rolled back, "the application can safely retry the whole
	// transaction" (Error Codes and Troubleshooting).
	8002: true, // TiDB: transaction to be retried
	8005: true, // TiDB: stale write
	8022: true, // TiDB: safe to retry
	8028: true, // TiDB: schema changed
	9007: true, // TiDB: write conflict
}

// UndoneByMySQL reports whether the error with this number means that a statement, or its transaction, was undone
// because of another one, and may be repeated at once. A lock wait that took too long is not among them.
func UndoneByMySQL(number uint16) bool { return undone[number] }
