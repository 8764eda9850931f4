package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/kine"
	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/mysql"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// kineName is the command, and the name of a program that has its command line.
const kineName = "kine"

// commandLine returns the arguments of a command line. A program of kine's name has kine's flags, which may begin with
// one dash.
func commandLine(args []string) []string {
	if len(args) > 0 && filepath.Base(args[0]) == kineName {
		args = append([]string{"sqlbrain", kineName}, args[1:]...)
	}
	if len(args) < 2 || args[1] != kineName {
		return args[min(len(args), 1):]
	}
	return append([]string{kineName}, kine.New().Arguments(args[2:])...)
}

func (p *program) newKineCommand() *cobra.Command {
	flags := kine.New()
	var notes []string
	revert, keepWrites, again := false, false, false
	cmd := &cobra.Command{
		Use:   kineName,
		Short: "Serve with the command line of kine",
		Long: `Serve etcd clients with the flags and variables (KINE_ENDPOINT and so on) of kine 0.16, in its
place. A binary of the name kine takes these flags without the command.

Flags that have no meaning for sqlbrain are accepted, and the log says why they have none. A
setting for which kine has no flag can be given as a variable, as in SQLBRAIN_QUOTA_BACKEND_BYTES.
Processes over the same MySQL database find each other in it and form a cluster, without a setting.

If the database has a table of kine's, its keys are imported at the first start; otherwise an empty
table is made. No kine can use the table until --revert gives it back, with --keep-writes including
what was written since.`,
		Example: `  sqlbrain kine --endpoint 'mysql://user:pass@tcp(db)/k8s?tls=true' --listen-address unix:///k.sock
  kine --endpoint sqlite:///var/lib/kine/state.db --metrics-bind-address 0`,
		Args:    noArgs,
		Version: productVersion(),
		PreRunE: func(*cobra.Command, []string) error {
			if err := flags.Load(p.environ); err != nil {
				return err
			}
			var err error
			if notes, err = flags.Apply(p.settings); err != nil {
				return err
			}
			return p.settings.Load(p.environ)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if keepWrites && !revert {
				return &usageError{errors.New("--keep-writes is an addition to --revert")}
			}
			if revert && again {
				return &usageError{errors.New("--revert and --import-again exclude each other")}
			}
			if again {
				return p.changeKine(cmd.Context(), "sqlbrain has the keys of kine's table again",
					func(a *kine.Adoption, ctx context.Context) error { return a.Import(ctx, true) })
			}
			if revert {
				return p.changeKine(cmd.Context(), "kine can use its table again; sqlbrain's holds nothing",
					func(a *kine.Adoption, ctx context.Context) error { return a.Revert(ctx, keepWrites) })
			}
			return p.serveKine(cmd.Context(), notes)
		},
	}
	flags.Bind(cmd.Flags())
	cmd.Flags().BoolVar(&revert, "revert", false,
		"give kine its table back, if no key was written since the import; then end")
	cmd.Flags().BoolVar(&keepWrites, "keep-writes", false,
		"with --revert: if keys were written, write all keys into kine's table first")
	cmd.Flags().BoolVar(&again, "import-again", false,
		"import the keys of kine's table once more, if sqlbrain's table was emptied since the import; then end")
	cmd.SetVersionTemplate("kine (sqlbrain {{.Version}})\n")
	return cmd
}

// serveKine serves with the settings that kine's flags made.
func (p *program) serveKine(ctx context.Context, notes []string) error {
	u := p.settings.URL()
	// The name holds that of a pod, perhaps, which never comes back.
	p.settings.Node.Temporary = !p.settings.Given("name")
	if clustered(u.Dialect) && !p.settings.Given("listen-peer-urls") {
		pod, _ := lookUp(p.environ, "POD_IP")
		l, err := kine.PeerListener(ctx, u, pod)
		if err != nil {
			return err
		}
		defer l.Close() //nolint:errcheck // the server has closed it, unless it was not reached
		if kine.HostOnly(l) {
			notes = append(notes, "the database is on this host: members on other hosts cannot reach this one unless POD_IP "+
				"or --peer-bind-address is set")
		}
		p.settings.Server.PeerURLs = []string{kine.PeerURL(l)}
		p.settings.Server.Listen = opened(l)
	}
	return p.serve(ctx, func(logger *slog.Logger) error {
		for _, note := range notes {
			logger.Warn("command line of kine: " + note)
		}
		return p.adoptKine(ctx, u, logger)
	})
}

// adoptKine creates the database if it does not exist, as kine does, and takes kine's own table.
func (p *program) adoptKine(ctx context.Context, u *sqlstore.URL, logger *slog.Logger) error {
	return p.withDatabase(ctx, create, func(db *sqldb.Database) error {
		if u.Dialect == sqlstore.DialectMySQL && len(u.Addresses()) == 1 {
			created, err := mysql.CreateDatabase(ctx, u)
			if err != nil {
				return err
			}
			if created {
				logger.Info("created the database", "database", u.Database)
			}
		}
		if err := p.prepareSchema(ctx, logger); err != nil {
			return err
		}
		return p.withAdoption(ctx, db, logger, func(a *kine.Adoption, ctx context.Context) error {
			return a.Import(ctx, false)
		})
	})
}

// withAdoption calls f with the store open.
func (p *program) withAdoption(ctx context.Context, db *sqldb.Database, logger *slog.Logger,
	f func(*kine.Adoption, context.Context) error) (err error) {
	u := p.settings.URL()
	store, err := engines.Open(ctx, u, sqlstore.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return f(&kine.Adoption{DB: db.SQL(), Store: store, Dialect: u.Dialect, Logger: logger}, ctx)
}

// changeKine calls f on a database that exists, and prints done.
func (p *program) changeKine(ctx context.Context, done string, f func(*kine.Adoption, context.Context) error) error {
	logger, closeLog, err := p.newLogger()
	if err != nil {
		return err
	}
	err = p.withDatabase(ctx, change, func(db *sqldb.Database) error {
		if err := migrations.Verify(ctx, db.DialectName(), db.SQL()); err != nil {
			return err
		}
		return p.withAdoption(ctx, db, logger, func(a *kine.Adoption, ctx context.Context) error {
			if err := refuseRunning(ctx, a.Store, ""); err != nil {
				return err
			}
			return f(a, ctx)
		})
	})
	if err == nil {
		_, err = fmt.Fprintln(p.stdout, done)
	}
	return errors.Join(err, closeLog())
}

// opened returns a function that listens, and has l already.
func opened(l net.Listener) func(network, address string) (net.Listener, error) {
	return func(network, address string) (net.Listener, error) {
		if network == l.Addr().Network() && address == l.Addr().String() {
			return l, nil
		}
		return net.Listen(network, address)
	}
}

// lookUp returns the value of a variable.
func lookUp(environ []string, name string) (value string, ok bool) {
	for _, pair := range environ {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value, true
		}
	}
	return "", false
}
