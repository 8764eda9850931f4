package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/source"
	"github.com/golang-migrate/migrate/v4/source/iofs"
)

// Up applies the migrations that are missing. It first looks without a lock and
// returns if there is nothing to do, so that it needs no right to create tables
// then. It returns ErrNewer, ErrDirty, ErrForeignTable or ErrLocked, wrapped, and
// the engine's errors. On MySQL the context is looked at between statements only.
func Up(ctx context.Context, dialectName string, db *sql.DB) error {
	err := Verify(ctx, dialectName, db)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrMissing), errors.Is(err, ErrOlder):
	case errors.Is(err, ErrDirty):
		// Another process may be migrating now; if so, it holds the lock.
	default:
		return err
	}
	if err := withMigrate(ctx, dialectName, db, (*migrate.Migrate).Up); err != nil {
		return err
	}
	return Verify(ctx, dialectName, db)
}

// Down reverts the newest migration that is applied, and with it the data it
// holds: reverting the first one drops the table. With nothing applied it
// returns ErrMissing.
func Down(ctx context.Context, dialectName string, db *sql.DB) error {
	err := Verify(ctx, dialectName, db)
	if err != nil && !errors.Is(err, ErrOlder) {
		return err
	}
	return withMigrate(ctx, dialectName, db, func(m *migrate.Migrate) error { return m.Steps(-1) })
}

// Force records version as the one that is applied and clears the mark that
// ErrDirty reports, without running anything; version 0 records that nothing is
// applied. It is for an operator who has looked at the tables.
func Force(ctx context.Context, dialectName string, db *sql.DB, version uint) error {
	latest, err := Latest(dialectName)
	if err != nil {
		return err
	}
	if version > latest {
		return fmt.Errorf("%w: it knows versions up to %d, not %d", ErrNewer, latest, version)
	}
	if err := Verify(ctx, dialectName, db); errors.Is(err, ErrForeignTable) {
		return err
	}
	forced := int(version)
	if version == 0 {
		forced = database.NilVersion
	}
	return withMigrate(ctx, dialectName, db, func(m *migrate.Migrate) error { return m.Force(forced) })
}

// Version returns the version of the schema, 0 if there is none, and whether a
// migration to it did not finish.
func Version(ctx context.Context, dialectName string, db *sql.DB) (version uint, dirty bool, err error) {
	st, err := inspectDB(ctx, dialectName, db)
	if err != nil {
		return 0, false, err
	}
	if err := st.foreign(); err != nil {
		return 0, false, err
	}
	return st.version, st.dirty, nil
}

// Latest returns the version this binary needs.
func Latest(dialectName string) (uint, error) {
	d, err := lookup(dialectName)
	if err != nil {
		return 0, err
	}
	src, err := iofs.New(files, d.dir)
	if err != nil {
		return 0, fmt.Errorf("migrations: %w", err)
	}
	defer func() { _ = src.Close() }() // embedded: nothing to release
	return lastVersion(src)
}

func lastVersion(src source.Driver) (uint, error) {
	v, err := src.First()
	for err == nil {
		var next uint
		if next, err = src.Next(v); err == nil {
			v = next
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("migrations: %w", err)
	}
	return v, nil
}

// withMigrate runs f on a migrator that works on one connection of db.
func withMigrate(ctx context.Context, dialectName string, db *sql.DB, f func(*migrate.Migrate) error) error {
	d, err := lookup(dialectName)
	if err != nil {
		return err
	}
	return d.withConn(ctx, db, func(conn *sql.Conn) error {
		src, err := iofs.New(files, d.dir)
		if err != nil {
			return fmt.Errorf("migrations: %w", err)
		}
		var drv database.Driver
		if err := repeat(ctx, d.undone, func() (err error) {
			drv, err = d.driver(ctx, conn)
			return err
		}); err != nil {
			return translate(err)
		}
		drv = repeating{drv, ctx, d.undone}
		m, err := migrate.NewWithInstance("embedded", src, dialectName, drv)
		if err != nil {
			return errors.Join(translate(err), drv.Close())
		}
		stop := context.AfterFunc(ctx, func() { m.GracefulStop <- true })
		defer stop()

		err = f(m)
		if errors.Is(err, migrate.ErrNoChange) {
			err = nil
		}
		srcErr, dbErr := m.Close()
		return errors.Join(translate(err), srcErr, dbErr, ctx.Err())
	})
}

// Verify checks, without changing anything, that the schema is the one this
// binary needs. It returns nil, or ErrMissing, ErrOlder, ErrNewer, ErrDirty or
// ErrForeignTable, wrapped with what to do about it, or the engine's error.
func Verify(ctx context.Context, dialectName string, db *sql.DB) error {
	latest, err := Latest(dialectName)
	if err != nil {
		return err
	}
	st, err := inspectDB(ctx, dialectName, db)
	if err != nil {
		return err
	}
	return st.verify(latest)
}
