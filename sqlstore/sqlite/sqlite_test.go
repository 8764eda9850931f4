package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func TestSQLiteFileIsPrivateAndDurable(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b c?d")
	raw := "sqlite://" + string(bytes.ReplaceAll([]byte(dir), []byte("?"), []byte("%3F"))) + "/x%25%23.db"
	s := openURL(t, raw, sqlstore.Options{})
	for path, mode := range map[string]os.FileMode{dir: 0o700} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "x%#.db")); err != nil {
		t.Error(err)
	}
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "wal_autocheckpoint": "0",
		"journal_size_limit": "67108864", "auto_vacuum": "2", "busy_timeout": "10000"} {
		var got string
		if err := s.Database().SQL().QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s, want %s (%v)", pragma, got, want, err)
		}
	}
}

func TestSQLiteReopened(t *testing.T) {
	t.Parallel()
	raw := newURL(t)
	s := openURL(t, raw, sqlstore.Options{})
	b := s.BeginBatchWrite()
	b.Put([]byte("k"), []byte("v"))
	if err := b.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openURL(t, raw, sqlstore.Options{})
	if v, err := s.Get(context.Background(), []byte("k")); err != nil || string(v) != "v" {
		t.Errorf("%q, %v", v, err)
	}
}

func TestSQLiteDefragmentShrinksTheFile(t *testing.T) {
	t.Parallel()
	for _, vacuum := range []bool{false, true} {
		raw := newURL(t)
		path := parse(t, raw).Path
		s := openURL(t, raw, sqlstore.Options{})
		ctx := context.Background()
		if vacuum { // as a file that another program created
			for _, text := range []string{"PRAGMA auto_vacuum = NONE", "VACUUM"} {
				if _, err := s.Database().SQL().Exec(text); err != nil {
					t.Fatal(err)
				}
			}
		}
		commit := func(fill func(sqlstore.BatchWrite, int)) {
			t.Helper()
			b := s.BeginBatchWrite()
			for i := range 3000 {
				fill(b, i)
			}
			if err := b.Commit(ctx); err != nil {
				t.Fatal(err)
			}
		}
		commit(func(b sqlstore.BatchWrite, i int) { b.Put(fmt.Append(nil, i), make([]byte, 5000)) })
		full, _, err := s.Size(ctx)
		if err != nil {
			t.Fatal(err)
		}
		commit(func(b sqlstore.BatchWrite, i int) {
			if i%10 != 0 {
				b.Del(fmt.Append(nil, i))
			}
		})
		total, inUse, err := s.Size(ctx)
		if err != nil || total < full || inUse > total/2 {
			t.Errorf("after deleting: %d of %d in use (%v), it was %d", inUse, total, err, full)
		}
		if err := s.Defragment(ctx); err != nil {
			t.Fatal(err)
		}
		total, inUse, err = s.Size(ctx)
		if err != nil || total > full/2 || inUse > total {
			t.Errorf("after defragmenting: %d of %d in use (%v), it was %d", inUse, total, err, full)
		}
		if info, err := os.Stat(path); err != nil || info.Size() != total {
			t.Errorf("the file has %v bytes, want %d (%v)", info, total, err)
		}
	}
}

// TestSQLiteWaitEndsWithTheContext: another process may hold the lock.
func TestSQLiteWaitEndsWithTheContext(t *testing.T) {
	t.Parallel()
	raw := newURL(t)
	s, other := openURL(t, raw, sqlstore.Options{}), openURL(t, raw, sqlstore.Options{Shared: true})
	conn, err := other.Database().SQL().Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	exec := func(text string) {
		t.Helper()
		if _, err := conn.ExecContext(context.Background(), text); err != nil {
			t.Fatal(err)
		}
	}
	exec("BEGIN IMMEDIATE")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	commit := func(ctx context.Context) error {
		b := s.BeginBatchWrite()
		b.PutIfNotExist([]byte("k"), []byte("v"))
		return b.Commit(ctx)
	}
	if err := commit(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sqlstore.ErrUncertain) {
		t.Errorf("while another process writes: %v, want a definite DeadlineExceeded", err)
	}
	exec("ROLLBACK")
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := commit(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestSQLiteCreatedByTwoAtOnce: switching a new file to write-ahead mode takes a
// lock that both want.
func TestSQLiteCreatedByTwoAtOnce(t *testing.T) {
	t.Parallel()
	for range 20 {
		raw := newURL(t)
		errs := make(chan error, 4)
		for range cap(errs) {
			go func() {
				db, err := OpenDB(parse(t, raw), sqlstore.Options{})
				if err == nil {
					err = errors.Join(migrations.Up(context.Background(), db.DialectName(), db.SQL()), db.Close())
				}
				errs <- err
			}()
		}
		for range cap(errs) {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
	}
}

const (
	envChild  = "SQLSTORE_TEST_CHILD"
	increment = 150
)

// TestSQLiteOfTwoProcesses: stores that share a file take turns, and nothing is
// lost.
func TestSQLiteOfTwoProcesses(t *testing.T) {
	t.Parallel()
	if raw := os.Getenv(envChild); raw != "" {
		countUp(t, raw)
		return
	}
	raw := newURL(t)
	s := openURL(t, raw, sqlstore.Options{})
	b := s.BeginBatchWrite()
	b.Put([]byte("counter"), []byte("0"))
	if err := b.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	var children []*exec.Cmd
	var outputs []*bytes.Buffer
	for range 2 {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSQLiteOfTwoProcesses$")
		c.Env = append(os.Environ(), envChild+"="+raw)
		output := &bytes.Buffer{}
		c.Stdout, c.Stderr = output, output
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		children, outputs = append(children, c), append(outputs, output)
	}
	countUp(t, raw)
	for i, c := range children {
		if err := c.Wait(); err != nil {
			t.Errorf("%v\n%s", err, outputs[i])
		}
	}
	v, err := s.Get(context.Background(), []byte("counter"))
	if err != nil || string(v) != strconv.Itoa(3*increment) {
		t.Errorf("the counter is %s (%v), want %d", v, err, 3*increment)
	}
	var integrity string
	if err := s.Database().SQL().QueryRow("PRAGMA integrity_check").Scan(&integrity); err != nil || integrity != "ok" {
		t.Errorf("integrity_check: %s, %v", integrity, err)
	}
}

func countUp(t *testing.T, raw string) {
	t.Helper()
	ctx := context.Background()
	s, err := open(ctx, parse(t, raw), sqlstore.Options{Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	for done := 0; done < increment; {
		old, err := s.Get(ctx, []byte("counter"))
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(string(old))
		if err != nil {
			t.Fatal(err)
		}
		b := s.BeginBatchWrite()
		b.CAS([]byte("counter"), []byte(strconv.Itoa(n+1)), old)
		err = b.Commit(ctx)
		var c *sqlstore.Conflict
		switch {
		case err == nil:
			done++
		case !errors.As(err, &c):
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
