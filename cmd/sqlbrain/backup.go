package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/cloudtoken"
	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
	"github.com/sqlbrain/sqlbrain/server/backup"
	"github.com/sqlbrain/sqlbrain/server/etcd"
	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/server/snapshot"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/durable"
)

func (p *program) newBackupCommand() *cobra.Command {
	output, to, continuous := outputTable, "", false
	cmd := &cobra.Command{
		Use:   "backup --to FILE | (file:///DIRECTORY | s3://BUCKET/PREFIX) --continuous",
		Short: "Write a consistent backup of the database to a file, while servers serve it",
		Long: `Write a consistent backup of the database to a file, while servers serve it.

The file has the format of etcdctl snapshot save, on every engine: sqlbrain restore and etcdutl
snapshot restore read it. It holds one revision with its history, leases, users and roles, and is
not encrypted. backup reads the database directly, in short queries: it needs no running server, and
no lock or transaction of it lasts. For an SQLite file it runs on the same host as the server, as
its user.

With --continuous it first writes such a file into a directory or a bucket, and then the log of
changes, until it is stopped: sqlbrain restore --from file:///DIRECTORY --at brings back any moment
since then. It lags about a second. After an interruption it continues where it was; if history was
compacted since, or while the first file was written, with another such file. Each day, or when the
log is larger than the newest file, another one follows. What only moments before --backup-keep need
is removed, but never the newest --backup-keep-bases of these files and the log since. One process
at a time should write there.

For s3:// it takes endpoint and region from AWS_ENDPOINT_URL and AWS_REGION, and credentials from
AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the files of the AWS tools, or the role of the machine
or pod.

FILE must not exist. It appears under its name once it is complete and on disk, with mode 0600.
Until then its directory holds temporary files, of up to twice the size of the backup.`,
		Example: `  sqlbrain backup --to /backups/monday.db --data-dir /var/lib/sqlbrain
  sqlbrain backup --to monday.db --datastore 'mysql://user:password@db.example/sqlbrain?tls=true'
  sqlbrain backup --to file:///backups/now --continuous --data-dir /var/lib/sqlbrain
  AWS_REGION=eu-north-1 sqlbrain backup --to s3://backups/etcd --continuous --data-dir /data
  sqlbrain restore monday.db --datastore 'mysql://user:password@db.example/other?tls=true'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if continuous {
				return p.ship(cmd.Context(), to, output)
			}
			if f := cmd.Flags(); f.Changed("backup-keep") || f.Changed("backup-keep-bases") ||
				f.Changed("backup-recipient") {
				return &usageError{errors.New("--backup-keep, --backup-keep-bases and --backup-recipient need --continuous")}
			}
			if namesPlace(to) {
				return &usageError{fmt.Errorf("--to %s needs --continuous; without it, --to names a file", to)}
			}
			return p.backup(cmd.Context(), to, output)
		},
	}
	p.needs(cmd, append(databaseFlags, "backup-keep", "backup-keep-bases", "backup-recipient")...)
	cmd.Flags().StringVar(&to, "to", "", "the file to write; with --continuous file:///DIRECTORY or s3://BUCKET/PREFIX")
	cmd.Flags().BoolVar(&continuous, "continuous", false, "follow the database until the command is stopped")
	if err := cmd.MarkFlagRequired("to"); err != nil {
		panic(err) // the flag is there
	}
	addOutputFlag(cmd, &output)
	cmd.AddCommand(p.newVerifyCommand())
	return cmd
}

func (p *program) backup(ctx context.Context, path string, form output) error {
	var made *export.Snapshot
	var bytes int64
	err := createComplete(path, func(w io.Writer) error {
		return p.withStore(ctx, sqlstore.Options{ReadOnly: true, Shared: true}, func(store sqlstore.Store) (err error) {
			made, bytes, err = writeBackup(ctx, store, filepath.Dir(path), w)
			return err
		})
	})
	if err != nil {
		return err
	}
	if form == outputJSON {
		return json.NewEncoder(p.stdout).Encode(struct {
			Datastore string `json:"datastore"`
			File      string `json:"file"`
			Revision  int64  `json:"revision"`
			Bytes     int64  `json:"bytes"`
		}{p.settings.URL().String(), path, made.Revision, bytes})
	}
	_, err = fmt.Fprintf(p.stdout, "datastore   %s\nfile        %s, %d bytes\nrevision    %d\n", p.settings.URL(), path,
		bytes, made.Revision)
	return err
}

// ship writes a continuous backup until ctx ends.
func (p *program) ship(ctx context.Context, target string, form output) error {
	cfg, err := backupConfig(&p.settings.Config, target)
	if err != nil {
		return &usageError{err}
	}
	newest := int64(0)
	log := slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{ReplaceAttr: logged}))
	err = p.withStore(ctx, sqlstore.Options{ReadOnly: true, Shared: true}, func(store sqlstore.Store) error {
		cfg.Store, cfg.Log = store, log
		cfg.Shipped = func(revision int64) {
			if newest == 0 {
				log.Info("the backup follows the database", "revision", revision)
			}
			newest = revision
		}
		return backup.Ship(ctx, cfg)
	})
	if err == nil && newest == 0 {
		err = errors.New("it was stopped before anything was written")
	}
	if err != nil {
		return err
	}
	if form == outputJSON {
		return json.NewEncoder(p.stdout).Encode(struct {
			Datastore string `json:"datastore"`
			To        string `json:"to"`
			Revision  int64  `json:"revision"`
		}{p.settings.URL().String(), cfg.To.String(), newest})
	}
	_, err = fmt.Fprintf(p.stdout, "datastore   %s\nto          %s\nrevision    %d\n", p.settings.URL(), cfg.To, newest)
	return err
}

// backUp prepares the backup that c's replica writes while it leads. The caller must call stop when that has ended.
func backUp(c *config.Config, store sqlstore.Store) (stop func(), err error) {
	if c.BackupTo == "" {
		if len(c.BackupRecipients) > 0 {
			err = &usageError{errors.New("--backup-recipient needs --backup-to")}
		}
		return func() {}, err
	}
	cfg, err := backupConfig(c, c.BackupTo)
	if err != nil {
		return nil, err
	}
	cfg.Store, cfg.TempDir, cfg.Log, cfg.Metrics = store, c.Server.SnapshotDir, c.Server.Logger,
		backup.NewMetrics(c.Server.Registry)
	keeper := backup.NewKeeper(cfg)
	c.Replica.Leading = keeper.Lead
	return func() {
		if !keeper.Close(c.Server.StopTimeout) {
			cfg.Log.Warn("the place of the backup does not answer, leaving it", "to", cfg.To.String())
		}
	}, nil
}

// backupConfig returns what the settings say about a continuous backup.
func backupConfig(c *config.Config, target string) (cfg backup.Config, err error) {
	cfg.Keep, cfg.KeepBases = c.BackupKeep, c.BackupKeepBases
	cfg.About = snapshot.About{ClusterVersion: etcd.ClusterVersion, StorageVersion: etcd.StorageVersion}
	if cfg.To, err = backup.OpenPlace(target, &workload{}); err != nil {
		return cfg, err
	}
	if cfg.Recipients, err = backup.Recipients(c.BackupRecipients); err != nil {
		err = fmt.Errorf("--backup-recipient: %w", err)
	}
	return cfg, err
}

// workload has the credentials of the pod or machine for a bucket.
type workload struct{ credentials.Expiry }

// RetrieveWithCredContext implements credentials.Provider.
func (w *workload) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return w.Retrieve()
}

// Retrieve implements credentials.Provider.
func (w *workload) Retrieve() (credentials.Value, error) {
	c, err := cloudtoken.AWS(context.Background()) // its requests have timeouts
	if err != nil {
		return credentials.Value{}, err
	}
	w.SetExpiration(c.Until, 0)
	return credentials.Value{AccessKeyID: c.ID, SecretAccessKey: c.Secret, SessionToken: c.Session,
		SignerType: credentials.SignatureV4}, nil
}

// writeBackup writes a backup of store to w. dir is for temporary files.
func writeBackup(ctx context.Context, store sqlstore.Store, dir string,
	w io.Writer) (made *export.Snapshot, bytes int64, err error) {
	if err := repair.RefuseUnfinished(ctx, store); err != nil {
		return nil, 0, err
	}
	file, err := snapshot.NewMaker(dir).Make(ctx, func() (_ *export.Snapshot, err error) {
		if made, err = export.OpenTable(ctx, store); errors.Is(err, sqlstore.ErrKeyNotFound) {
			err = errors.New("the database is empty: no server has served it")
		}
		return made, err
	}, snapshot.About{ClusterVersion: etcd.ClusterVersion, StorageVersion: etcd.StorageVersion})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	// A restore that began after the first check may have removed rows before they were read.
	if err := repair.RefuseUnfinished(ctx, store); err != nil {
		return nil, 0, err
	}
	err = file.Send(func(block []byte, _ int64) error {
		bytes += int64(len(block))
		_, err := w.Write(block)
		return errors.Join(err, ctx.Err())
	})
	return made, bytes, err
}

// createComplete creates the file path, mode 0600, with what write writes. The file has its name once it is complete
// and flushed; an error before that leaves nothing. Errors: fs.ErrExist.
func createComplete(path string, write func(io.Writer) error) error {
	if err := refuseExisting(path); err != nil {
		return err
	}
	return durable.Create(path, "."+filepath.Base(path)+".part-", write, func() error { return refuseExisting(path) })
}

func refuseExisting(path string) error {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = fs.ErrExist
	}
	return fmt.Errorf("%s: %w", path, err)
}
