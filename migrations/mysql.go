package migrations

import (
	"context"
	"database/sql"
	"errors"

	driver "github.com/go-sql-driver/mysql"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/mysql"

	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// mysqlDialect serves MySQL, MariaDB and TiDB.
var mysqlDialect = dialect{
	dir:      "mysql",
	keyTypes: []string{"varbinary"}, valueTypes: []string{"mediumblob", "longblob"},
	columns: func(ctx context.Context, conn *sql.Conn, table string) ([]column, error) {
		// AS BINARY: table names may differ by case alone. CAST: MySQL reports
		// DATA_TYPE as one type of text, MariaDB as another.
		return scanColumns(ctx, conn, `SELECT COLUMN_NAME, CAST(DATA_TYPE AS CHAR(64) CHARACTER SET utf8mb4) FROM information_schema.COLUMNS
			WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND CAST(TABLE_NAME AS BINARY) = ? ORDER BY ORDINAL_POSITION`, table, table)
	},
	// golang-migrate records the version in a SERIALIZABLE transaction. TiDB has
	// none, and refuses unless the session accepts its snapshots instead. They suffice
	// because the lock is held. To others it is a comment.
	readLockWait: "SELECT @@SESSION.lock_wait_timeout", lockWait: 10,
	setLockWait: "SET SESSION /*T! tidb_skip_isolation_level_check = 'ON', */ lock_wait_timeout = ",
	// WithConnection, not WithInstance: closing the latter closes the pool. The
	// driver's lock is GET_LOCK, named after the database, held by the
	// connection, and thus gone with the process.
	driver: func(ctx context.Context, conn *sql.Conn) (database.Driver, error) {
		drv, err := mysql.WithConnection(ctx, conn, &mysql.Config{MigrationsTable: versionsTable})
		if err != nil {
			return nil, err
		}
		return keepOpen{drv}, nil
	},
	undone: undoneByMySQL,
}

// keepOpen is a driver that leaves its connection to the one who made it.
type keepOpen struct{ database.Driver }

func (keepOpen) Close() error { return nil }

// undoneByMySQL reports whether err says that the statement, or the transaction that it
// belongs to, was undone because of another one.
func undoneByMySQL(err error) bool {
	var e *driver.MySQLError
	return errors.As(err, &e) && retry.UndoneByMySQL(e.Number)
}
