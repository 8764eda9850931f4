package sqlite

import (
	"bufio"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// refused demands that raw cannot be opened, because of a holder with that pid.
func refused(t *testing.T, raw string, pid int) {
	t.Helper()
	_, err := open(t.Context(), parse(t, raw), sqlstore.Options{})
	require.ErrorIs(t, err, sqlstore.ErrInUse)
	require.ErrorContains(t, err, "test.db")
	require.ErrorContains(t, err, fmt.Sprintf("process %d ", pid))
}

func TestSQLiteFileHasOneStore(t *testing.T) {
	t.Parallel()
	raw := newURL(t)
	s := openURL(t, raw, sqlstore.Options{})
	path := parse(t, raw).Path
	refused(t, raw, os.Getpid())

	// Other names of the same file, relative ones and links of links included.
	dir := filepath.Dir(path)
	wd, err := os.Getwd()
	require.NoError(t, err)
	relative, err := filepath.Rel(wd, path)
	require.NoError(t, err)
	links := t.TempDir()
	for link, target := range map[string]string{"dir": dir, "link-test.db": path, "chain-test.db": "link-test.db"} {
		require.NoError(t, os.Symlink(target, filepath.Join(links, link)))
	}
	for _, name := range []string{
		relative, filepath.Join(dir, "..", filepath.Base(dir), "test.db"), filepath.Join(links, "dir", "test.db"),
		filepath.Join(links, "link-test.db"), filepath.Join(links, "chain-test.db"),
	} {
		refused(t, "sqlite://"+name, os.Getpid())
	}

	// A database without a store is for reading beside it, until it asks.
	db, err := OpenDB(parse(t, raw), sqlstore.Options{})
	require.NoError(t, err)
	_, err = db.Check(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, db.Lock(), sqlstore.ErrInUse, "Lock beside a store")
	require.NoError(t, s.Close())
	for range 2 {
		require.NoError(t, db.Lock(), "Lock once the store is closed")
	}
	refused(t, raw, os.Getpid())
	require.NoError(t, db.Close())
	openURL(t, raw, sqlstore.Options{})
}

// TestSQLiteLockOfAFileToBe: the database need not exist to be locked, not even
// where a link leads to.
func TestSQLiteLockOfAFileToBe(t *testing.T) {
	t.Parallel()
	dir, links := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "test.db")
	require.NoError(t, os.Symlink(path, filepath.Join(links, "test.db")))
	open := func(path string) *sqldb.Database {
		db, err := OpenDB(parse(t, "sqlite://"+path), sqlstore.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	}
	one, two := open(filepath.Join(links, "test.db")), open(path)
	require.NoError(t, one.Lock())
	require.ErrorIs(t, two.Lock(), sqlstore.ErrInUse)
	require.NoFileExists(t, path)
	require.NoError(t, os.Symlink("loop.db", filepath.Join(links, "loop.db")))
	err := open(filepath.Join(links, "loop.db")).Lock()
	require.Error(t, err)
	require.NotErrorIs(t, err, sqlstore.ErrInUse)
}

const envHolder = "SQLSTORE_TEST_HOLDER"

// TestSQLiteLockEndsWithTheProcess: a crash leaves no stale lock.
func TestSQLiteLockEndsWithTheProcess(t *testing.T) {
	t.Parallel()
	if raw := os.Getenv(envHolder); raw != "" {
		_, err := open(t.Context(), parse(t, raw), sqlstore.Options{})
		require.NoError(t, err)
		fmt.Println("held")
		_, _ = io.Copy(io.Discard, os.Stdin) // until killed; select {} would be a deadlock to the runtime
		return
	}
	raw := newURL(t)
	migrate(t, raw)
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSQLiteLockEndsWithTheProcess$")
	c.Env = append(os.Environ(), envHolder+"="+raw)
	_, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	lines := bufio.NewScanner(out)
	var said []string // why it ended, if it did
	for lines.Scan() && lines.Text() != "held" {
		said = append(said, lines.Text())
	}
	require.Equal(t, "held", lines.Text(), "%s: %v", strings.Join(said, "\n"), lines.Err())
	refused(t, raw, c.Process.Pid)
	require.NoError(t, c.Process.Kill())
	_ = c.Wait() // says that it was killed
	openURL(t, raw, sqlstore.Options{})
}

// A program that reads a file in rollback mode, and has been suspended, keeps the file from write-ahead mode: that is
// an error after the time that other statements wait too.
func TestTheSwitchToWriteAheadModeGivesUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rollback.db")
	var busyError error
	for _, text := range []string{"CREATE TABLE t (a); BEGIN EXCLUSIVE", "SELECT * FROM t"} {
		db, err := sql.Open("sqlite", path)
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxOpenConns(1)
		_, busyError = db.ExecContext(t.Context(), text)
	}
	require.True(t, busy(busyError), busyError)
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		err := setUpFile(func(text string) ([]driver.Value, error) {
			if text == "PRAGMA journal_mode = WAL" {
				time.Sleep(busyTimeout)
				return nil, busyError
			}
			return []driver.Value{int64(incrementalVacuum)}, nil
		})
		require.ErrorIs(t, err, busyError)
		require.LessOrEqual(t, time.Since(started), 2*busyTimeout)
	})
}
