package migrations

import "errors"

// Errors of Verify and of the functions that change the schema.
var (
	// ErrMissing: the database holds no schema yet.
	ErrMissing = errors.New("the database has no sqlbrain schema")
	// ErrOlder: the schema is older than this binary needs.
	ErrOlder = errors.New("the schema is older than this binary needs")
	// ErrNewer: a newer binary has migrated the schema.
	ErrNewer = errors.New("the schema is newer than this binary")
	// ErrDirty: a migration began and did not finish.
	ErrDirty = errors.New("a schema migration did not finish")
	// ErrForeignTable: a table of a name that sqlbrain uses belongs to another
	// program.
	ErrForeignTable = errors.New("the database belongs to another program")
	// ErrLocked: another process has been migrating for longer than 10 s. On SQLite it may be writing anything.
	ErrLocked = errors.New("another process is migrating the schema")
	// ErrDialect: there are no migrations for that engine.
	ErrDialect = errors.New("no migrations for this dialect")
)
