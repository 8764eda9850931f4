package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/backup"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// requireOnly demands that a directory has these entries and no other.
func requireOnly(t *testing.T, directory string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(directory)
	require.NoError(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	require.Equal(t, names, got)
}

func TestBackupThatNoRestoreTakesIsNotMade(t *testing.T) {
	datastore, directory := sqliteURL(t), t.TempDir()
	n := startNode(t, "--datastore", datastore)
	n.put(t, "k", "v")
	require.Zero(t, n.stop())
	put := func(key, value []byte) {
		sqliteExec(t, datastore, fmt.Sprintf("INSERT OR REPLACE INTO object VALUES (x'%x', x'%x')", key, value))
	}
	refused := func(row string) {
		t.Helper()
		a := execute(t, "backup", "--to", filepath.Join(directory, "backup.db"), "--datastore", datastore)
		require.Equal(t, 1, a.code)
		require.Contains(t, a.stderr, row)
		requireOnly(t, directory)
	}
	put(coder.EncodeAuthKey(coder.AuthUser, "n"), coder.EncodeAuthValue([]byte("?")))
	put(coder.AuthSettingsKey(), coder.EncodeAuthSettings(coder.AuthSettings{Version: 1}))
	refused(`the user "n"`)
	put(coder.EncodeVersionKey([]byte("k"), 2), coder.EncodeVersion(&coder.Record{Key: []byte("k"), CreateRevision: 2,
		ModRevision: 2}))
	refused(`the version of "k" at revision 2`)
}

func TestBackupIsRefused(t *testing.T) {
	directory := t.TempDir()
	file := filepath.Join(directory, "backup.db")
	refused := func(datastore, want string) {
		t.Helper()
		execute(t, "backup", "--to", file, "--datastore", datastore).requireRefused(t, want)
	}
	datastore := sqliteURL(t)
	refused(datastore, "the file does not exist")
	succeed(t, "migrate", "up", "--datastore", datastore)
	refused(datastore, "the database is empty")
	executeEnv(t, []string{"SQLBRAIN_BACKUP_RECIPIENT=age1x"}, "backup", "--to", file, "--datastore",
		datastore).requireRefused(t, "the database is empty") // the variable is for a server's backup
	requireOnly(t, directory)

	sqliteExec(t, datastore, fmt.Sprintf("INSERT INTO object VALUES (x'%x', x'%x')", coder.JobKey(),
		coder.EncodeJob(coder.NewJob(coder.JobRestore))))
	refused(datastore, "the database is being restored")
	requireOnly(t, directory)

	require.NoError(t, os.WriteFile(file, []byte("older"), 0o600))
	refused(datastore, "file already exists")
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "older", string(kept))
	execute(t, "backup", "--datastore", datastore).requireRefused(t, `required flag(s) "to" not set`)
	for _, flag := range []string{"--backup-keep=1h", "--backup-keep-bases=2", "--backup-recipient=age1x"} {
		execute(t, "backup", "--to", file, "--datastore", datastore, flag).requireRefused(t, "need --continuous")
	}
	execute(t, "backup", "--to", "file:///backups", "--datastore", datastore).requireRefused(t, "needs --continuous")
	unserved := sqliteURL(t)
	succeed(t, "migrate", "up", "--datastore", unserved)
	execute(t, "backup", "--to", "file://"+filepath.ToSlash(t.TempDir()), "--continuous", "--datastore",
		unserved).requireRefused(t, "no server has served this table yet")
	execute(t, "backup", "--to", filepath.Join(directory, "not", "b"), "--datastore", datastore).requireRefused(t,
		"no such file or directory")
}

// TestInterruptedBackupLeavesNoFile at any time, and none under the final name while it runs.
func TestInterruptedBackupLeavesNoFile(t *testing.T) {
	directory := t.TempDir()
	path := filepath.Join(directory, "file")
	half := func(w io.Writer) error {
		_, err := w.Write([]byte("half"))
		require.NoError(t, err)
		require.NoFileExists(t, path)
		return err
	}
	require.ErrorIs(t, createComplete(path, func(w io.Writer) error { return errors.Join(half(w), context.Canceled) }),
		context.Canceled)
	requireOnly(t, directory)

	// Another process makes the file in the meantime.
	require.ErrorIs(t, createComplete(path, func(w io.Writer) error {
		return errors.Join(half(w), os.WriteFile(path, []byte("other"), 0o600))
	}), fs.ErrExist)
	requireOnly(t, directory, "file")
	kept, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "other", string(kept))
	require.NoError(t, os.Remove(path))

	require.NoError(t, createComplete(path, half))
	kept, err = os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "half", string(kept))
}

// TestBackupNeedsTheRightToReadOnly, so that a job for backups can have a separate user.
func TestBackupNeedsTheRightToReadOnly(t *testing.T) {
	database := enginetest.Database(t)
	n := startNode(t, "--datastore", database)
	n.put(t, "k", "v")
	require.Zero(t, n.stop())
	directory := t.TempDir()
	file := filepath.Join(directory, "backup.db")
	a := succeed(t, "backup", "--to", file, "--datastore", newUser(t, database, "SELECT"), "-o", "json")
	var report struct{ Revision, Bytes int64 }
	require.NoError(t, json.Unmarshal([]byte(a.stdout), &report))
	require.EqualValues(t, 2, report.Revision)
	requireOnly(t, directory, "backup.db")
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())
	require.Equal(t, report.Bytes, info.Size())
}

// TestServerBacksUp: the leader writes a backup, and exports how old it is.
func TestServerBacksUp(t *testing.T) {
	onEngines(t, "ALL PRIVILEGES", func(t *testing.T, datastore string) {
		target := "file://" + filepath.ToSlash(t.TempDir())
		place, err := backup.OpenPlace(target, nil)
		require.NoError(t, err)
		ctx := testContext(t)
		kept := int64(0)
		for range 2 { // stopped, and started again
			n := startNode(t, "--datastore", datastore, "--backup-to", target, "--snapshot-dir", t.TempDir())
			res, err := n.client(t).Put(ctx, "k", fmt.Sprint(kept))
			require.NoError(t, err)
			kept = res.Header.Revision
			eventually.True(t, "the backup has it", func() bool {
				b, err := backup.Open(ctx, backup.Source{Place: place}, backup.Moment{})
				if err != nil {
					return false
				}
				require.NoError(t, b.Close())
				revision, _ := b.Newest()
				return revision >= kept
			})
			require.Contains(t, body(t, n.endpoint+"/metrics"), "sqlbrain_backup_age_seconds")
			require.Zero(t, n.stop())
		}
		other := sqliteURL(t)
		a := succeed(t, "restore", "--from", target, "--at", fmt.Sprint(kept), "--datastore", other)
		require.Contains(t, a.stdout, fmt.Sprintf("revision    %d, nothing is compacted", kept))
	})
	execute(t, "serve", "--backup-to", "backups").requireRefused(t, "--backup-to: backups names no place")
}

// TestCredentialsOfThePod are taken from an address that may hold them, and sent to the bucket; the pod's token is sent
// to no other address.
func TestCredentialsOfThePod(t *testing.T) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_REGION": "here",
		"AWS_SHARED_CREDENTIALS_FILE": "none", "AWS_CONFIG_FILE": "none"} {
		t.Setenv(name, value)
	}
	var asked atomic.Int64
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		assert.Equal(t, "pod-token", r.Header.Get("Authorization"))
		_, _ = fmt.Fprintf(w, `{"AccessKeyId": "ASIA1", "SecretAccessKey": "s", "Token": "t", "Expiration": %q}`,
			time.Now().Add(time.Hour).Format(time.RFC3339))
	}))
	defer agent.Close()
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), "Credential=ASIA1/") {
			_, _ = io.WriteString(w, "<ListBucketResult></ListBucketResult>")
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "<Error><Code>AccessDenied</Code></Error>")
	}))
	defer storage.Close()
	t.Setenv("AWS_ENDPOINT_URL", storage.URL)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("pod-token"), 0o600))
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file)
	list := func(uri string) error {
		t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", uri)
		cfg, err := backupConfig(&config.Config{}, "s3://bucket/prefix")
		require.NoError(t, err)
		_, err = cfg.To.List(testContext(t))
		return err
	}
	require.NoError(t, list(agent.URL))
	require.EqualValues(t, 1, asked.Load())
	err := list(strings.Replace(agent.URL, "127.0.0.1", "0.0.0.0", 1)) // which is the same server on Linux
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "AWS_CONTAINER_CREDENTIALS_FULL_URI must be https")
	require.EqualValues(t, 1, asked.Load())
}

// TestContinuousBackup follows a server, is stopped and started again, and is restored to a moment
// before everything was deleted.
func TestContinuousBackup(t *testing.T) {
	onEngines(t, "ALL PRIVILEGES", func(t *testing.T, datastore string) {
		n := startNode(t, "--datastore", datastore)
		c, ctx := n.client(t), testContext(t)
		target := "file://" + filepath.ToSlash(t.TempDir())
		place, err := backup.OpenPlace(target, nil)
		require.NoError(t, err)
		identity, err := age.GenerateX25519Identity()
		require.NoError(t, err)
		identities := []age.Identity{identity}
		file := filepath.Join(t.TempDir(), "identity")
		require.NoError(t, os.WriteFile(file, []byte(identity.String()), 0o600))
		lease, err := c.Grant(ctx, 10_000)
		require.NoError(t, err)
		put := func(key string) int64 {
			t.Helper()
			res, err := c.Put(ctx, key, "v", clientv3.WithLease(lease.ID))
			require.NoError(t, err)
			return res.Header.Revision
		}
		ship := func(until int64) {
			t.Helper()
			running, stop := context.WithCancel(ctx)
			defer stop()
			done := make(chan answer, 1)
			go func() {
				var stdout, stderr bytes.Buffer
				code := run(running, []string{"backup", "--to", target, "--continuous", "--backup-recipient",
					identity.Recipient().String(), "--datastore", datastore}, nil, &stdout, &stderr)
				done <- answer{code, stdout.String(), stderr.String()}
			}()
			eventually.True(t, "the backup has it", func() bool {
				b, err := backup.Open(ctx, backup.Source{Place: place, Identities: identities}, backup.Moment{})
				if err != nil {
					return false
				}
				revision, _ := b.Newest()
				return b.Close() == nil && revision >= until
			})
			stop()
			a := <-done
			a.requireNoSecret(t)
			require.Zero(t, a.code, a.stderr)
			require.Contains(t, a.stdout, fmt.Sprintf("revision    %d", until))
		}
		ship(put("first"))
		for i := range 30 {
			put(fmt.Sprint("k", i))
		}
		kept := put("last")
		ship(kept)
		_, err = c.Delete(ctx, "", clientv3.WithPrefix())
		require.NoError(t, err)
		ship(kept + 1)

		odd := filepath.Join(t.TempDir(), "50%?#")
		require.NoError(t, os.Mkdir(odd, 0o700))
		moments := []string{"diff", "--at", fmt.Sprint(kept - 5), "--and", fmt.Sprint(kept + 1)}
		was := succeed(t, append(moments, "--datastore", datastore)...)
		require.Equal(t, 27, strings.Count(was.stdout, "deleted"), "first, and k0 to k25")
		is := succeed(t, append(moments, "--from", target, "--backup-identity", file, "--tmpdir", odd)...)
		require.Equal(t, was.stdout, is.stdout)

		other := sqliteURL(t)
		a := succeed(t, "restore", "--from", target, "--backup-identity", file, "--at", fmt.Sprint(kept), "--datastore", other)
		require.Contains(t, a.stdout, fmt.Sprintf("revision    %d, nothing is compacted", kept))
		restored := startNode(t, "--datastore", other).client(t)
		for _, at := range []int64{kept, kept - 5} {
			was, err := c.HashKV(ctx, n.endpoint, at)
			require.NoError(t, err)
			is, err := restored.HashKV(ctx, restored.Endpoints()[0], at)
			require.NoError(t, err)
			require.Equal(t, was.Hash, is.Hash, "revision %d", at)
		}
		held, err := restored.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
		require.NoError(t, err)
		require.Len(t, held.Keys, 32)

		verify := []string{"backup", "verify", "--from", target, "--backup-identity", file, "--restore"}
		a = succeed(t, append(verify, "--datastore", datastore)...)
		require.Contains(t, a.stdout, fmt.Sprintf("revisions   2 to %d", kept+1))
		require.Contains(t, a.stdout, "complete    until ")
		require.Contains(t, a.stdout, fmt.Sprintf("is equal at revision %d, and has 0 newer ones", kept+1))
		for _, order := range [][]string{{"--at", "1m", "--and", "2m"}, {"--at", "3", "--and", "2"}} {
			execute(t, append([]string{"diff", "--from", target, "--backup-identity", file}, order...)...).requireRefused(t,
				"is later than --and")
		}
		execute(t, append(verify, "--datastore", other)...).requireRefused(t,
			fmt.Sprintf("is at revision %d, and the backup at %d", kept, kept+1))
		segments, err := filepath.Glob(filepath.Join(strings.TrimPrefix(target, "file://"), "log-*"))
		require.NoError(t, err)
		content, err := os.ReadFile(segments[0])
		require.NoError(t, err)
		require.NoError(t, os.Remove(segments[0]))
		damaged := execute(t, verify...)
		damaged.requireRefused(t, "the backup is damaged")
		require.Contains(t, damaged.stdout, filepath.Base(segments[0]))
		require.NoError(t, os.WriteFile(segments[0], content, 0o600))

		for at, want := range map[string]string{"1h": "does not have this moment", "99999": "it ends at revision",
			"noon": "neither a time", "0": "revisions begin at 1", "0001-01-01T00:00:00Z": "is no time of a commit"} {
			execute(t, "restore", "--from", target, "--backup-identity", file, "--at", at, "--datastore",
				sqliteURL(t)).requireRefused(t, want)
		}
		execute(t, "restore", "--from", target, "--datastore", sqliteURL(t)).requireRefused(t, "the backup is encrypted")
		execute(t, "restore", "file.db", "--at", "5", "--datastore", other).requireRefused(t, "are for a continuous backup")
		execute(t, "backup", "--to", "backups", "--continuous", "--datastore", datastore).requireRefused(t, "names no place")
	})
}
