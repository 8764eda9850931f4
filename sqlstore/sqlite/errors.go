package sqlite

import (
	"errors"
	"io/fs"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// Retryable implements sqldb.Engine: SQLite waits by itself.
func (*engine) Retryable(error) bool { return false }

// Classify implements sqldb.Engine.
func (*engine) Classify(err error) sqldb.Failure {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return sqldb.FailureUnavailable // the file cannot be created
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return sqldb.FailureOther
	}
	switch e.Code() & 0xff { // extended codes carry more above
	case sqlite3.SQLITE_CONSTRAINT:
		if c := e.Code(); c == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY || c == sqlite3.SQLITE_CONSTRAINT_UNIQUE {
			return sqldb.FailureConflict
		}
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN,
		sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_NOLFS:
		return sqldb.FailureUnavailable
	case sqlite3.SQLITE_FULL:
		return sqldb.FailureFull
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_PROTOCOL:
		return sqldb.FailureUnknown
	case sqlite3.SQLITE_TOOBIG:
		return sqldb.FailureTooLarge
	case sqlite3.SQLITE_INTERRUPT:
		return sqldb.FailureLost
	}
	return sqldb.FailureOther
}
