package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
)

// program is what all commands share.
type program struct {
	settings *config.Settings
	environ  []string
	stdout   io.Writer
	stderr   io.Writer
}

// errReported is the error of a command that has said what there is to say.
var errReported = errors.New("reported")

// run executes one command line and returns the exit code. An error is one line
// on stderr, without passwords.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	p := &program{settings: config.New(), environ: environ, stdout: stdout, stderr: stderr}
	root := p.newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if !errors.Is(err, errReported) {
		line := p.settings.Redact(err.Error())
		line = strings.Join(strings.FieldsFunc(line, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
		if usage := (*usageError)(nil); errors.As(err, &usage) {
			line += "; see " + cmd.CommandPath() + " --help"
		}
		// Nothing is left to do if even this cannot be written.
		_, _ = fmt.Fprintln(stderr, "sqlbrain: "+line)
	}
	return 1
}

// needs gives cmd these flags of the settings, or all of them, and loads the settings before cmd runs.
func (p *program) needs(cmd *cobra.Command, flags ...string) {
	p.settings.Bind(cmd.Flags(), flags...)
	cmd.PreRunE = func(*cobra.Command, []string) error { return p.settings.Load(p.environ, flags...) }
}

// noArgs refuses arguments, which are most often misspelt commands.
func noArgs(cmd *cobra.Command, args []string) error {
	err := cobra.NoArgs(cmd, args)
	if err == nil {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2 // replaced, missing or superfluous letters
	if names := cmd.SuggestionsFor(args[0]); len(names) > 0 {
		return fmt.Errorf("%w: did you mean %q?", err, names[0])
	}
	return err
}

// usageError is a command line that cannot be understood.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func (p *program) newRootCommand() *cobra.Command {
	root := p.newServeCommand()
	root.Use = "sqlbrain"
	root.Short = "An etcd v3 server whose data lives in one SQL table"
	root.Long = root.Short + `.

Without a command it serves. Each flag can also be given as an environment variable (--max-txn-ops
is SQLBRAIN_MAX_TXN_OPS) and as a key of the YAML file that --config-file names (max-txn-ops). A
flag beats the environment, which beats the file.`
	root.Example = `  sqlbrain
  sqlbrain --datastore 'mysql://user@db/sqlbrain?tls=true' --datastore-password-file password
  sqlbrain doctor --datastore mysql://user:password@127.0.0.1/sqlbrain`
	root.Version = productVersion()
	root.SetVersionTemplate("sqlbrain {{.Version}}\n")
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{config.FlagError(cmd.Flags(), err)}
	})
	root.AddCommand(p.newServeCommand(), p.newMigrateCommand(), p.newDoctorCommand(), p.newRecoverCommand(),
		p.newBackupCommand(), p.newRestoreCommand(), p.newHistoryCommand(), p.newDiffCommand(), p.newHealthCommand(),
		p.newVersionCommand(), p.newKineCommand(), p.newCtlCommand())
	arrangeHelp(root)
	return root
}
