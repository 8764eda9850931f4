package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/server/etcd"
	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/server/snapshot"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/durable"
)

func (p *program) newBackupCommand() *cobra.Command {
	output, to := outputTable, ""
	cmd := &cobra.Command{
		Use:   "backup --to FILE",
		Short: "Write a consistent backup of the database to a file, while servers serve it",
		Long: `Write a consistent backup of the database to a file, while servers serve it.

The file has the format of etcdctl snapshot save, on every engine: sqlbrain restore and etcdutl
snapshot restore read it. It holds one revision with its history, leases, users and roles. backup
reads the database directly, in short queries: it needs no running server, and no lock or
transaction of it lasts. For an SQLite file it runs on the same host as the server, as its user.

FILE must not exist. It appears under its name once it is complete and on disk, with mode 0600.
Until then its directory holds temporary files, of up to twice the size of the backup.`,
		Example: `  sqlbrain backup --to /backups/monday.db --data-dir /var/lib/sqlbrain
  sqlbrain backup --to monday.db --datastore 'mysql://user:password@db.example/sqlbrain?tls=true'
  sqlbrain restore monday.db --datastore 'mysql://user:password@db.example/other?tls=true'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.backup(cmd.Context(), to, output) },
	}
	p.needs(cmd, databaseFlags...)
	cmd.Flags().StringVar(&to, "to", "", "the file to write")
	if err := cmd.MarkFlagRequired("to"); err != nil {
		panic(err) // the flag is there
	}
	addOutputFlag(cmd, &output)
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
func createComplete(path string, write func(io.Writer) error) (err error) {
	if err := refuseExisting(path); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".part-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // after the rename nothing has this name
		}
	}()
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := refuseExisting(path); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return durable.FlushDir(dir)
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
