//go:build unix

package sqlite

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// openLogged opens a migrated store at path, and returns what it logged.
func openLogged(t *testing.T, path string) (*sqldb.Store, string) {
	t.Helper()
	ctx, u := context.Background(), parse(t, "sqlite://"+path)
	db, err := OpenDB(u, sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(ctx, db.DialectName(), db.SQL()); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s, err := open(ctx, u, sqlstore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return s, log.String()
}

// modes returns the modes of the files in dir.
func modes(t *testing.T, dir string) map[string]fs.FileMode {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]fs.FileMode{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = info.Mode().Perm()
	}
	return out
}

// It is not parallel: the umask is the process's.
func TestSQLiteFilesArePrivateWhateverTheUmask(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o277} {
		old := syscall.Umask(umask)
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("real.db", filepath.Join(dir, "link.db")); err != nil {
			t.Fatal(err)
		}
		s, log := openLogged(t, filepath.Join(dir, "link.db"))
		got := modes(t, dir)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		syscall.Umask(old)
		for _, name := range []string{"real.db", "real.db-wal", "real.db-shm", "real.db.lock"} {
			if mode, ok := got[name]; mode != 0o600 {
				t.Errorf("umask %#o: %s has mode %#o (exists: %t), want 0600", umask, name, mode, ok)
			}
		}
		if strings.Contains(log, "WARN") {
			t.Errorf("umask %#o: %s", umask, log)
		}
	}
}

func TestSQLiteFileThatExistsKeepsItsModeAndIsWarnedOf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "test.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	s, log := openLogged(t, path)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if mode := modes(t, dir)["test.db"]; mode != 0o640 {
		t.Errorf("mode %#o, want 0640", mode)
	}
	if !strings.Contains(log, "WARN") || !strings.Contains(log, "file="+path+" ") || !strings.Contains(log, "mode=0640") {
		t.Errorf("no warning of %s: %s", path, log)
	}
}
