package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

func (p *program) newMigrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create, check or remove the schema of the database",
		Long: `Create, check or remove the schema of the database.

The state is kept in the table schema_migrations, as golang-migrate keeps it. sqlbrain serve does
the same as "migrate up" when it starts, unless it runs with --migrate=verify. While a server has an
SQLite file open, up, down and force are refused.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return &usageError{errors.New("name one of up, down, version and force")}
		},
	}
	cmd.AddCommand(p.newMigrateUpCommand(), p.newMigrateDownCommand(), p.newMigrateVersionCommand(),
		p.newMigrateForceCommand())
	return cmd
}

// databaseCommand completes a command that works on the database.
func (p *program) databaseCommand(cmd *cobra.Command, a access,
	f func(context.Context, *sqldb.Database) error) *cobra.Command {
	p.needs(cmd, databaseFlags...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.withDatabase(cmd.Context(), a, func(db *sqldb.Database) error { return f(cmd.Context(), db) })
	}
	return cmd
}

func (p *program) newMigrateUpCommand() *cobra.Command {
	return p.databaseCommand(&cobra.Command{
		Use: "up", Short: "Apply the migrations that are missing", Args: cobra.NoArgs,
	}, create, func(ctx context.Context, db *sqldb.Database) error { return p.changeSchema(ctx, db, migrations.Up) })
}

func (p *program) newMigrateDownCommand() *cobra.Command {
	var yes bool
	cmd := p.databaseCommand(&cobra.Command{
		Use: "down", Short: "Revert the newest migration; reverting the first one deletes all data", Args: cobra.NoArgs,
	}, change, func(ctx context.Context, db *sqldb.Database) error {
		if !yes {
			return errors.New("this deletes data, and nothing brings it back; repeat with --yes if that is meant")
		}
		return p.changeSchema(ctx, db, migrations.Down)
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "really do it")
	return cmd
}

func (p *program) newMigrateVersionCommand() *cobra.Command {
	output := outputTable
	cmd := p.databaseCommand(&cobra.Command{
		Use: "version", Short: "Print the version of the schema", Args: cobra.NoArgs,
	}, readOnly, func(ctx context.Context, db *sqldb.Database) error { return p.printSchema(ctx, db, output) })
	addOutputFlag(cmd, &output)
	return cmd
}

func (p *program) newMigrateForceCommand() *cobra.Command {
	var version uint64
	readVersion := func(_ *cobra.Command, args []string) (err error) {
		if version, err = strconv.ParseUint(args[0], 10, 31); err != nil {
			err = &usageError{fmt.Errorf("%q is not a version", args[0])}
		}
		return err
	}
	return p.databaseCommand(&cobra.Command{
		Use:   "force VERSION",
		Short: "Record that the schema is at VERSION, after a migration was interrupted; runs nothing",
		Args:  cobra.MatchAll(cobra.ExactArgs(1), readVersion),
	}, change, func(ctx context.Context, db *sqldb.Database) error {
		return p.changeSchema(ctx, db, func(ctx context.Context, dialect string, pool *sql.DB) error {
			return migrations.Force(ctx, dialect, pool, uint(version))
		})
	})
}

// changeSchema runs apply while no server has an SQLite file open, and prints the state after it.
func (p *program) changeSchema(ctx context.Context, db *sqldb.Database,
	apply func(context.Context, string, *sql.DB) error) error {
	if err := db.Lock(); err != nil {
		return err
	}
	if err := apply(ctx, db.DialectName(), db.SQL()); err != nil {
		return err
	}
	return p.printSchema(ctx, db, outputTable)
}

func (p *program) printSchema(ctx context.Context, db *sqldb.Database, o output) error {
	version, dirty, err := migrations.Version(ctx, db.DialectName(), db.SQL())
	if err != nil {
		return err
	}
	latest, err := migrations.Latest(db.DialectName())
	if err != nil {
		return err
	}
	if o == outputJSON {
		return json.NewEncoder(p.stdout).Encode(struct {
			Version uint `json:"version"`
			Dirty   bool `json:"dirty"`
			Needed  uint `json:"needed"`
		}{version, dirty, latest})
	}
	state := ""
	if dirty {
		state = ", the migration to it did not finish"
	}
	_, err = fmt.Fprintf(p.stdout, "schema version %d%s (this binary needs %d)\n", version, state, latest)
	return err
}
