package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/doctor"
	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// errNoDatabase: an SQLite file that a command wants to look at does not exist.
var errNoDatabase = errors.New("the file does not exist")

// databaseFlags are the settings of the commands that need the database only.
var databaseFlags = []string{"datastore", "datastore-password-file", "datastore-password-command",
	"datastore-password-from", "data-dir"}

// access is what a command does with the database.
type access int

const (
	readOnly access = iota // nothing is changed
	change                 // it must exist
	create                 // an SQLite file that does not exist is created
)

// atDatastore says in which database err was met, and which setting names that database.
func (p *program) atDatastore(err error) error {
	if name := "datastore"; p.settings.Given(name) {
		return fmt.Errorf("datastore %s (%s): %w", p.settings.URL(), p.settings.Origin(name), err)
	}
	return fmt.Errorf("datastore %s: %w", p.settings.URL(), err)
}

// withDatabase runs f on the pools of the settings' database. Its error has the advice that doctor gives. Unless the
// access is create, an SQLite file that does not exist is errNoDatabase.
func (p *program) withDatabase(ctx context.Context, a access, f func(*sqldb.Database) error) (err error) {
	u := p.settings.URL()
	defer func() {
		if err != nil && ctx.Err() == nil {
			advice := ""
			if u.Dialect == sqlstore.DialectMySQL {
				advice = doctor.Advice(err)
			}
			if advice != "" {
				advice = "; " + advice
			}
			err = fmt.Errorf("%w%s", p.atDatastore(err), advice)
		}
	}()
	if u.Dialect == sqlstore.DialectSQLite && a != create {
		if _, err := os.Stat(u.Path); err != nil {
			return errors.Join(errNoDatabase, err)
		}
	}
	// Nodes that name the servers of a Galera in different orders migrate on one of
	// them all the same: the lock that makes one of them wait holds on that only.
	db, err := engines.OpenDB(u.InOrder(), sqlstore.Options{ReadOnly: a == readOnly})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return f(db)
}

// withStore runs f on the store in the settings' database, whose schema must be this binary's.
func (p *program) withStore(ctx context.Context, o sqlstore.Options, f func(sqlstore.Store) error) (err error) {
	err = p.withDatabase(ctx, readOnly, func(db *sqldb.Database) error {
		return migrations.Verify(ctx, db.DialectName(), db.SQL())
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && ctx.Err() == nil {
			err = p.atDatastore(err)
		}
	}()
	store, err := engines.Open(ctx, p.settings.URL(), o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return f(store)
}

// prepareSchema brings the schema up to date, or only checks it.
func (p *program) prepareSchema(ctx context.Context, logger *slog.Logger) error {
	return p.withDatabase(ctx, create, func(db *sqldb.Database) error {
		// A server may have the file open.
		if err := db.Lock(); err != nil {
			return err
		}
		err := migrations.Verify(ctx, db.DialectName(), db.SQL())
		missing := errors.Is(err, migrations.ErrMissing) || errors.Is(err, migrations.ErrOlder)
		// Another node that starts at this moment shows as a dirty schema; Up waits
		// for it, and finds out.
		if missing || errors.Is(err, migrations.ErrDirty) {
			if p.settings.Migrate {
				if err = migrations.Up(ctx, db.DialectName(), db.SQL()); err == nil {
					logger.Info("schema is up to date")
				}
			}
		}
		return err
	})
}
