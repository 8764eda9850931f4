package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// state is what a database holds of the schema.
type state struct {
	dialect  *dialect
	object   []column // none: no such table
	versions []column // none: no such table
	version  uint     // 0: nothing applied
	dirty    bool
}

func (st *state) verify(latest uint) error {
	const up = "run `sqlbrain migrate up --datastore URL`"
	switch err := st.foreign(); {
	case err != nil:
		return err
	case st.dirty:
		return dirtyError(int(st.version))
	case st.version == 0:
		return fmt.Errorf("%w: %s", ErrMissing, up)
	case st.version < latest:
		return fmt.Errorf("%w: it is at version %d, version %d is needed: %s", ErrOlder, st.version, latest, up)
	case st.version > latest:
		return fmt.Errorf("%w: it is at version %d, this binary knows %d: use the sqlbrain that migrated it, or a newer one",
			ErrNewer, st.version, latest)
	}
	return nil
}

func dirtyError(version int) error {
	return fmt.Errorf("%w: the one to version %d was interrupted; see whether its change is in the database, "+
		"then run `sqlbrain migrate force VERSION --datastore URL` with the version that is", ErrDirty, version)
}

// foreign returns ErrForeignTable if a table of ours was made by someone else.
func (st *state) foreign() error {
	const hint = "give sqlbrain a database of its own"
	switch {
	case len(st.object) > 0 && len(st.versions) == 0:
		// A table that the user has no right on is not shown either.
		return fmt.Errorf("%w: it has a table %s, but no table %s: %s, or, if sqlbrain made the table, grant the user "+
			"SELECT on %[3]s",
			ErrForeignTable, objectTable, versionsTable, hint)
	case len(st.versions) > 0 && !named(st.versions, "version", "dirty"):
		return fmt.Errorf("%w: the columns of its table %s are not golang-migrate's: %s", ErrForeignTable,
			versionsTable, hint)
	case len(st.object) > 0 && !st.dialect.isObject(st.object):
		return fmt.Errorf("%w: the columns of its table %s are not sqlbrain's: %s", ErrForeignTable, objectTable, hint)
	case st.applied() && len(st.object) == 0:
		return fmt.Errorf("%w: its table %s says version %d, but it has no table %s: %s, or, if sqlbrain's table was "+
			"dropped by hand, drop %[2]s too", ErrForeignTable, versionsTable, st.version, objectTable, hint)
	}
	return nil
}

func (st *state) applied() bool { return st.version > 0 && !st.dirty }

func (d *dialect) isObject(cols []column) bool {
	return named(cols, "internal_key", "object_value") &&
		slices.Contains(d.keyTypes, strings.ToLower(cols[0].typ)) &&
		slices.Contains(d.valueTypes, strings.ToLower(cols[1].typ))
}

func named(cols []column, names ...string) bool {
	return slices.EqualFunc(cols, names, func(c column, n string) bool { return strings.EqualFold(c.name, n) })
}

// inspectDB says what db holds. It repeats looks that others' changes of the schema undo.
func inspectDB(ctx context.Context, dialectName string, db *sql.DB) (st *state, err error) {
	d, err := lookup(dialectName)
	if err != nil {
		return nil, err
	}
	err = d.withConn(ctx, db, func(conn *sql.Conn) error {
		look := func() (err error) {
			st, err = d.inspect(ctx, conn)
			return err
		}
		err := repeat(ctx, d.undone, look)
		if err == nil && st.applied() && len(st.object) == 0 {
			// Either the table is gone, or another process created it between
			// the two looks. Another look distinguishes the two cases.
			err = repeat(ctx, d.undone, look)
		}
		if err != nil {
			return fmt.Errorf("migrations: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return st, nil
}

// inspect looks at object first: Up creates schema_migrations before it, so that
// an object without schema_migrations is foreign, even while another process is
// migrating.
func (d *dialect) inspect(ctx context.Context, conn *sql.Conn) (*state, error) {
	st := &state{dialect: d}
	var err error
	if st.object, err = d.columns(ctx, conn, objectTable); err != nil {
		return nil, err
	}
	if st.versions, err = d.columns(ctx, conn, versionsTable); err != nil {
		return nil, err
	}
	if !named(st.versions, "version", "dirty") {
		return st, nil
	}
	var version int64
	err = conn.QueryRowContext(ctx, "SELECT version, dirty FROM "+versionsTable).Scan(&version, &st.dirty)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return st, nil
	case err != nil:
		return nil, err
	}
	// -1 is golang-migrate's word for nothing, kept only with the dirty mark.
	st.version = uint(max(version, 0))
	return st, nil
}

func scanColumns(ctx context.Context, conn *sql.Conn, query string, args ...any) (cols []column, err error) {
	rows, err := conn.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var c column
		if err := rows.Scan(&c.name, &c.typ); err != nil {
			return nil, err
		}
		cols = append(cols, c)
	}
	return cols, rows.Err()
}
