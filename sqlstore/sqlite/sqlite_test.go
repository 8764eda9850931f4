package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

func TestSQLiteFileIsPrivateAndDurable(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b c?d")
	raw := "sqlite://" + string(bytes.ReplaceAll([]byte(dir), []byte("?"), []byte("%3F"))) + "/x%25%23.db"
	s := openURL(t, raw, sqlstore.Options{})
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.EqualValues(t, 0o700, info.Mode().Perm())
	require.FileExists(t, filepath.Join(dir, "x%#.db"))
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "wal_autocheckpoint": "0",
		"journal_size_limit": "67108864", "auto_vacuum": "2", "busy_timeout": "10000"} {
		var got string
		require.NoError(t, s.Database().SQL().QueryRow("PRAGMA "+pragma).Scan(&got))
		require.Equal(t, want, got, pragma)
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
				_, err := s.Database().SQL().Exec(text)
				require.NoError(t, err)
			}
		}
		commit := func(fill func(sqlstore.BatchWrite, int)) {
			t.Helper()
			b := s.BeginBatchWrite()
			for i := range 3000 {
				fill(b, i)
			}
			require.NoError(t, b.Commit(ctx))
		}
		commit(func(b sqlstore.BatchWrite, i int) { b.Put(fmt.Append(nil, i), make([]byte, 5000)) })
		full, _, err := s.Size(ctx)
		require.NoError(t, err)
		commit(func(b sqlstore.BatchWrite, i int) {
			if i%10 != 0 {
				b.Del(fmt.Append(nil, i))
			}
		})
		total, inUse, err := s.Size(ctx)
		require.NoError(t, err)
		require.GreaterOrEqual(t, total, full, "after deleting")
		require.LessOrEqual(t, inUse, total/2, "after deleting")
		require.NoError(t, s.Defragment(ctx))
		total, inUse, err = s.Size(ctx)
		require.NoError(t, err)
		require.LessOrEqual(t, total, full/2)
		require.LessOrEqual(t, inUse, total)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, total, info.Size())
	}
}

// TestSQLiteWaitEndsWithTheContext: another process may hold the lock.
func TestSQLiteWaitEndsWithTheContext(t *testing.T) {
	t.Parallel()
	raw := newURL(t)
	s, other := openURL(t, raw, sqlstore.Options{}), openURL(t, raw, sqlstore.Options{Shared: true})
	conn, err := other.Database().SQL().Conn(context.Background())
	require.NoError(t, err)
	execute := func(text string) {
		t.Helper()
		_, err := conn.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	execute("BEGIN IMMEDIATE")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	commit := func(ctx context.Context) error {
		b := s.BeginBatchWrite()
		b.PutIfNotExist([]byte("k"), []byte("v"))
		return b.Commit(ctx)
	}
	err = commit(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "while another process writes")
	require.NotErrorIs(t, err, sqlstore.ErrUncertain)
	execute("ROLLBACK")
	require.NoError(t, conn.Close())
	require.NoError(t, commit(context.Background()))
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
			require.NoError(t, <-errs)
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
	require.NoError(t, b.Commit(context.Background()))
	var children []*exec.Cmd
	var outputs []*bytes.Buffer
	for range 2 {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSQLiteOfTwoProcesses$")
		c.Env = append(os.Environ(), envChild+"="+raw)
		output := &bytes.Buffer{}
		c.Stdout, c.Stderr = output, output
		require.NoError(t, c.Start())
		children, outputs = append(children, c), append(outputs, output)
	}
	countUp(t, raw)
	for i, c := range children {
		if err := c.Wait(); err != nil {
			t.Errorf("%v\n%s", err, outputs[i])
		}
	}
	require.Equal(t, strconv.Itoa(3*increment), rows(t, s)["counter"])
}

func countUp(t *testing.T, raw string) {
	t.Helper()
	ctx := context.Background()
	s, err := open(ctx, parse(t, raw), sqlstore.Options{Shared: true})
	require.NoError(t, err)
	for done := 0; done < increment; {
		old, err := s.Get(ctx, []byte("counter"))
		require.NoError(t, err)
		n, err := strconv.Atoi(string(old))
		require.NoError(t, err)
		b := s.BeginBatchWrite()
		b.CAS([]byte("counter"), []byte(strconv.Itoa(n+1)), old)
		err = b.Commit(ctx)
		if !sqlstore.IsConflict(err) {
			require.NoError(t, err)
			done++
		}
	}
	require.NoError(t, s.Close())
}

// rows returns all rows of a database, after a check of it.
func rows(t *testing.T, s *sqldb.Store) map[string]string {
	t.Helper()
	db := s.Database().SQL()
	var integrity string
	require.NoError(t, db.QueryRow("PRAGMA integrity_check").Scan(&integrity))
	require.Equal(t, "ok", integrity)
	found := map[string]string{}
	r, err := db.Query("SELECT internal_key, object_value FROM object")
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	for r.Next() {
		var key, value []byte
		require.NoError(t, r.Scan(&key, &value))
		found[string(key)] = string(value)
	}
	require.NoError(t, r.Err())
	return found
}

// beginRead begins a transaction that reads the present state.
func beginRead(t *testing.T, s *sqldb.Store) *sql.Tx {
	t.Helper()
	tx, err := s.Database().Read().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	var n int
	require.NoError(t, tx.QueryRow("SELECT count(*) FROM object").Scan(&n))
	return tx
}
