package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/server/snapshot"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
)

func (p *program) newRestoreCommand() *cobra.Command {
	output := outputTable
	c := restoreCommand{program: p}
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Fill a database from a backup or an etcd snapshot, or from a running server",
		Long: `Fill an empty database from a file of sqlbrain backup, or of etcdctl snapshot save, made of an etcd
or of a sqlbrain. With --replace the database need not be empty: what it holds is removed. Stop all
servers first; restore changes nothing while a member runs.

It restores keys with all their versions since the compact revision, revisions, leases, users,
roles, and whether authentication is on, but not members and alarms. It checks the file before it
changes the database. Until it has finished, the database is marked and no server serves it. If it
is interrupted, run it again: it starts from the beginning.

Clients may have seen revisions that the backup does not have. So the revision is raised by
1,000,000,000 above every one that a replaced database had, and everything below counts as
compacted: clients list again. Of an empty database restore cannot know what clients have seen: the
revision is kept; raise it with --bump-revision and --mark-compacted if they saw a newer one, by
more than it has risen since the backup, earlier raises included: 2000000000 or more if restore or
recover raised it since. These flags take precedence, and --bump-revision 0 keeps the revision of
the backup.

With --from file:///DIRECTORY or s3://BUCKET/PREFIX it takes a moment of a continuous backup, the
end or --at: the keys, their history back to the base before it, and the times of revisions after
that. Leases, users and roles of a time are those that the backup read last before it: up to 20
seconds earlier, unless it was interrupted. Those of a revision may have been read later, while no
commit followed.

With --from it takes the snapshot from a running server, which should no longer be written to. If
the server makes no snapshots, as kine, it copies the keys at one revision: their values, mod and
create revisions, versions, and leases with their full TTL. The history below that revision counts
as compacted.`,
		Example: `  etcdctl snapshot save snapshot.db
  sqlbrain restore snapshot.db --datastore 'mysql://user:password@db/sqlbrain?tls=true'
  sqlbrain restore backup.db --replace --data-dir /var/lib/sqlbrain
  sqlbrain restore --from http://kine:2379 --datastore 'mysql://user:password@db/sqlbrain?tls=true'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.keep = cmd.Flags().Changed("bump-revision") && c.bump == 0
			return c.run(cmd.Context(), args, output)
		},
	}
	p.needs(cmd, append(databaseFlags, "bcrypt-cost")...)
	f := cmd.Flags()
	f.BoolVar(&c.skipHash, "skip-hash-check", false,
		"do not compare the file with the hash at its end; for a file that was copied from a data directory and has none")
	f.BoolVar(&c.replace, "replace", false, "replace what the database holds")
	f.Int64Var(&c.bump, "bump-revision", 0, "how much to raise the backup's revision by; not given, it is raised above "+
		"what a replaced database had")
	f.BoolVar(&c.compact, "mark-compacted", false,
		"mark everything below the new revision as compacted (required with --bump-revision, and only then)")
	f.StringVar(&c.at, "at", "", "with --from of a continuous backup: "+atHelp+" (default: the end of the backup)")
	f.StringVar(&c.identity, "backup-identity", "", "with --from of an encrypted backup: `file` with an identity of age")
	c.source.bind(f)
	addOutputFlag(cmd, &output)
	return cmd
}

// load fills a store.
type load func(store sqlstore.Store, progress func(snapshot.Progress)) (*snapshot.Loaded, error)

type restoreCommand struct {
	*program
	source            source
	skipHash, compact bool
	replace           bool
	at, identity      string
	bump              int64
	keep              bool // --bump-revision 0 is given
}

func (c *restoreCommand) run(ctx context.Context, args []string, form output) (err error) {
	switch {
	case c.bump < 0:
		return &usageError{errors.New("--bump-revision must not be negative")}
	case (c.bump > 0) != c.compact:
		return &usageError{errors.New("--bump-revision and --mark-compacted need each other, as in etcdutl")}
	}
	o := snapshot.LoadOptions{Replace: c.replace, Bump: c.bump, CheckPassword: func(hash []byte) error {
		return guard.CheckStoredPassword(hash, guard.MaxStoredCost(c.settings.Server.BcryptCost))
	}}
	if c.keep {
		o.Bump = snapshot.NoBump
	}
	into := func(f load) (*snapshot.Loaded, error) { return c.into(ctx, f) }
	var loaded *snapshot.Loaded
	switch {
	case (len(args) == 1) == (c.source.endpoint != ""):
		return &usageError{errors.New("name either a FILE, or a server or a continuous backup by --from")}
	case strings.HasPrefix(c.source.endpoint, "/"):
		return &usageError{fmt.Errorf("--from %s: a directory is named as file://%[1]s", c.source.endpoint)}
	case namesPlace(c.source.endpoint):
		loaded, err = c.loadContinuous(ctx, o, into)
	case c.at != "" || c.identity != "":
		return &usageError{errors.New("--at and --backup-identity are for a continuous backup: " +
			"--from file:///DIRECTORY or s3://BUCKET/PREFIX")}
	case len(args) == 1:
		loaded, err = loadFile(ctx, args[0], c.skipHash, o, into)
	case c.skipHash:
		return &usageError{errors.New("--skip-hash-check is for a FILE")}
	default:
		loaded, err = c.source.load(ctx, o, into, func(line string) {
			_, _ = fmt.Fprintln(c.stderr, line) // as progress
		})
	}
	if err != nil {
		return err
	}
	return c.report(loaded, form)
}

// loadContinuous fills the database from a continuous backup.
func (c *restoreCommand) loadContinuous(ctx context.Context, o snapshot.LoadOptions,
	into func(load) (*snapshot.Loaded, error)) (_ *snapshot.Loaded, err error) {
	from := archived{url: c.source.endpoint, identity: c.identity, tempDir: c.source.directory}
	b, err := from.open(ctx, "at", c.at)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := b.Damage(); err != nil {
		_, _ = fmt.Fprintf(c.stderr, "warning: this backup has no later moments: %v\n", err)
	}
	if revision, at := b.Newest(); !at.IsZero() {
		_, _ = fmt.Fprintf(c.stderr, "restoring revision %d of %s\n", revision, history.FormatTime(at)) // as progress
	}
	return into(func(store sqlstore.Store, progress func(snapshot.Progress)) (*snapshot.Loaded, error) {
		o.Progress = progress
		return b.Load(ctx, store, o)
	})
}

// loadFile fills the database from a file.
func loadFile(ctx context.Context, path string, skipHash bool, o snapshot.LoadOptions,
	into func(load) (*snapshot.Loaded, error)) (_ *snapshot.Loaded, err error) {
	file, err := snapshot.Open(ctx, path, skipHash)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	l, err := into(func(store sqlstore.Store, progress func(snapshot.Progress)) (*snapshot.Loaded, error) {
		o.Progress = progress
		return file.Load(ctx, store, o)
	})
	if errors.Is(err, snapshot.ErrDamaged) {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return l, err
}

// into runs load on the settings' database, whose schema is made if it is missing.
func (c *restoreCommand) into(ctx context.Context, fill load) (_ *snapshot.Loaded, err error) {
	if err := c.prepareSchema(ctx, slog.New(slog.DiscardHandler)); err != nil {
		return nil, err
	}
	u := c.settings.URL()
	store, err := engines.Open(ctx, u, sqlstore.Options{})
	if err != nil {
		return nil, c.atDatastore(err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if c.replace {
		if err := refuseRunning(ctx, store, ""); err != nil {
			return nil, err
		}
	}
	loaded, err := fill(store, progressTo(c.stderr))
	if errors.Is(err, repair.ErrNotEmpty) {
		err = c.atDatastore(err)
	}
	return loaded, err
}

// progressInterval is how often progress is printed.
const progressInterval = 2 * time.Second

// progressTo prints a line now and then.
func progressTo(w io.Writer) func(snapshot.Progress) {
	started := time.Now()
	printed := started
	return func(p snapshot.Progress) {
		now := time.Now()
		if now.Sub(printed) < progressInterval {
			return
		}
		printed = now
		// A restore must not fail because its progress cannot be printed.
		_, _ = fmt.Fprintf(w, "%s: %d of %d (%s)\n", p.Phase, p.Done, p.Total, now.Sub(started).Round(time.Second))
	}
}

func (c *restoreCommand) report(l *snapshot.Loaded, o output) error {
	if o == outputJSON {
		return json.NewEncoder(c.stdout).Encode(struct {
			Datastore string `json:"datastore"`
			*snapshot.Loaded
		}{c.settings.URL().String(), l})
	}
	auth := "off"
	if l.AuthEnabled {
		auth = "on"
	}
	raised := ""
	switch replaced, safe := l.Replaced > 0, l.Revision > l.Replaced && l.CompactRevision == l.Revision; {
	case replaced && safe:
		raised = fmt.Sprintf("replaced    revision %d: the new one is above it, and clients that have seen older ones "+
			"list again", l.Replaced)
	case replaced:
		raised = fmt.Sprintf("replaced    revision %d, which the new one is not safely above: clients may take new data "+
			"for old", l.Replaced)
	case l.CompactRevision < l.Revision:
		raised = fmt.Sprintf("not raised  the database was empty: if a client has seen a revision above %d, run sqlbrain "+
			"recover --yes before a server starts", l.Revision)
	}
	compacted := "nothing is compacted"
	if l.CompactRevision > 0 {
		compacted = fmt.Sprintf("compacted below %d", l.CompactRevision)
	}
	lines := []string{
		"datastore   " + c.settings.URL().String(),
		fmt.Sprintf("revision    %d, %s", l.Revision, compacted),
		fmt.Sprintf("keys        %d, in %d versions", l.Keys, l.Versions),
		fmt.Sprintf("leases      %d", l.Leases),
		fmt.Sprintf("users       %d, roles %d, authentication %s", l.Users, l.Roles, auth),
	}
	if raised != "" {
		lines = slices.Insert(lines, 2, raised)
	}
	if l.Alarms > 0 {
		lines = append(lines, fmt.Sprintf("left out    %d alarms: look at why they were raised", l.Alarms))
	}
	_, err := fmt.Fprintln(c.stdout, strings.Join(lines, "\n"))
	return err
}
