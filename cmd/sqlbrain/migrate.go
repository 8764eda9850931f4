package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func (p *program) newMigrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create, check or remove the schema of the database",
		Long: `Create, check or remove the schema of the database.

The state is kept in the table schema_migrations, as golang-migrate keeps it. sqlbrain serve does the same as
"migrate up" when it starts, unless it is told --migrate=verify. An SQLite file that a server has open is only
looked at: up, down and force are refused.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return &usageError{errors.New("name one of up, down, version and force")}
		},
	}
	cmd.AddCommand(p.newMigrateUpCommand(), p.newMigrateDownCommand(), p.newMigrateVersionCommand(), p.newMigrateForceCommand())
	return cmd
}

// databaseCommand completes a command that works on the database.
func (p *program) databaseCommand(cmd *cobra.Command, create bool, f func(context.Context, *sqlstore.Database) error) *cobra.Command {
	p.settings.Bind(cmd.Flags(), databaseFlags...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := p.settings.Load(p.environ); err != nil {
			return err
		}
		return p.withDatabase(cmd.Context(), create, func(db *sqlstore.Database) error { return f(cmd.Context(), db) })
	}
	return cmd
}

func (p *program) newMigrateUpCommand() *cobra.Command {
	return p.databaseCommand(&cobra.Command{
		Use: "up", Short: "Apply the migrations that are missing", Args: cobra.NoArgs,
	}, true, func(ctx context.Context, db *sqlstore.Database) error {
		if err := db.Lock(); err != nil {
			return err
		}
		if err := migrations.Up(ctx, db.DialectName(), db.SQL()); err != nil {
			return err
		}
		return p.printSchema(ctx, db, outputTable)
	})
}

func (p *program) newMigrateDownCommand() *cobra.Command {
	var yes bool
	cmd := p.databaseCommand(&cobra.Command{
		Use: "down", Short: "Revert the newest migration; reverting the first one deletes all data", Args: cobra.NoArgs,
	}, false, func(ctx context.Context, db *sqlstore.Database) error {
		if !yes {
			return errors.New("this deletes data, and nothing brings it back; repeat with --yes if that is meant")
		}
		if err := db.Lock(); err != nil {
			return err
		}
		if err := migrations.Down(ctx, db.DialectName(), db.SQL()); err != nil {
			return err
		}
		return p.printSchema(ctx, db, outputTable)
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "really do it")
	return cmd
}

func (p *program) newMigrateVersionCommand() *cobra.Command {
	output := outputTable
	cmd := p.databaseCommand(&cobra.Command{
		Use: "version", Short: "Print the version of the schema", Args: cobra.NoArgs,
	}, false, func(ctx context.Context, db *sqlstore.Database) error { return p.printSchema(ctx, db, output) })
	addOutputFlag(cmd, &output)
	return cmd
}

func (p *program) newMigrateForceCommand() *cobra.Command {
	var version uint64
	cmd := p.databaseCommand(&cobra.Command{
		Use:   "force VERSION",
		Short: "Record that the schema is at VERSION, after a migration was interrupted; runs nothing",
		Args:  cobra.ExactArgs(1),
	}, false, func(ctx context.Context, db *sqlstore.Database) error {
		if err := db.Lock(); err != nil {
			return err
		}
		if err := migrations.Force(ctx, db.DialectName(), db.SQL(), uint(version)); err != nil {
			return err
		}
		return p.printSchema(ctx, db, outputTable)
	})
	inner := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if version, err = strconv.ParseUint(args[0], 10, 31); err != nil {
			return &usageError{fmt.Errorf("%q is not a version", args[0])}
		}
		return inner(cmd, args)
	}
	return cmd
}

func (p *program) printSchema(ctx context.Context, db *sqlstore.Database, o output) error {
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
