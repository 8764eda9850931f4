package sqlite

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
	s, err := open(context.Background(), parse(t, raw), sqlstore.Options{})
	if err == nil {
		err = s.Close()
		t.Fatalf("%s was opened twice (%v)", raw, err)
	}
	if !errors.Is(err, sqlstore.ErrInUse) || !strings.Contains(err.Error(), "test.db") ||
		!strings.Contains(err.Error(), "process "+strconv.Itoa(pid)+" ") {
		t.Errorf("%v; want ErrInUse, naming the file and process %d", err, pid)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(wd, path)
	if err != nil {
		t.Fatal(err)
	}
	links := t.TempDir()
	for link, target := range map[string]string{"dir": dir, "link-test.db": path, "chain-test.db": "link-test.db"} {
		if err := os.Symlink(target, filepath.Join(links, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{
		relative, filepath.Join(dir, "..", filepath.Base(dir), "test.db"), filepath.Join(links, "dir", "test.db"),
		filepath.Join(links, "link-test.db"), filepath.Join(links, "chain-test.db"),
	} {
		refused(t, "sqlite://"+name, os.Getpid())
	}

	// A database without a store is for reading beside it, until it asks.
	db, err := OpenDB(parse(t, raw), sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Check(context.Background()); err != nil {
		t.Error(err)
	}
	if err := db.Lock(); !errors.Is(err, sqlstore.ErrInUse) {
		t.Errorf("Lock beside a store: %v, want ErrInUse", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := db.Lock(); err != nil {
			t.Errorf("Lock once the store is closed: %v", err)
		}
	}
	refused(t, raw, os.Getpid())
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	openURL(t, raw, sqlstore.Options{})
}

// TestSQLiteLockOfAFileToBe: the database need not exist to be locked, not even
// where a link leads to.
func TestSQLiteLockOfAFileToBe(t *testing.T) {
	t.Parallel()
	dir, links := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "test.db")
	if err := os.Symlink(path, filepath.Join(links, "test.db")); err != nil {
		t.Fatal(err)
	}
	open := func(path string) *sqldb.Database {
		db, err := OpenDB(parse(t, "sqlite://"+path), sqlstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		return db
	}
	one, two := open(filepath.Join(links, "test.db")), open(path)
	if err := one.Lock(); err != nil {
		t.Fatal(err)
	}
	if err := two.Lock(); !errors.Is(err, sqlstore.ErrInUse) {
		t.Errorf("%v, want ErrInUse", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("locking made the database: %v", err)
	}
	if err := os.Symlink("loop.db", filepath.Join(links, "loop.db")); err != nil {
		t.Fatal(err)
	}
	if err := open(filepath.Join(links, "loop.db")).Lock(); err == nil || errors.Is(err, sqlstore.ErrInUse) {
		t.Errorf("a link to itself: %v", err)
	}
}

const envHolder = "SQLSTORE_TEST_HOLDER"

// TestSQLiteLockEndsWithTheProcess: a crash leaves no stale lock.
func TestSQLiteLockEndsWithTheProcess(t *testing.T) {
	t.Parallel()
	if raw := os.Getenv(envHolder); raw != "" {
		if _, err := open(context.Background(), parse(t, raw), sqlstore.Options{}); err != nil {
			t.Fatal(err)
		}
		fmt.Println("held")
		select {} // until killed
	}
	raw := newURL(t)
	migrate(t, raw)
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSQLiteLockEndsWithTheProcess$")
	c.Env = append(os.Environ(), envHolder+"="+raw)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "held" {
	}
	refused(t, raw, c.Process.Pid)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
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
