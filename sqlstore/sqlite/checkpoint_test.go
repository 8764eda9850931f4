package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

func put(t *testing.T, s *sqldb.Store, key string, bytes int) {
	t.Helper()
	require.NoError(t, commitPut(t, s, key, bytes))
}

func commitPut(t *testing.T, s *sqldb.Store, key string, bytes int) error {
	b := s.BeginBatchWrite()
	value := fmt.Appendf(nil, "%8d", puts.Add(1)) // SQLite writes no page that is there
	b.Put([]byte(key), slices.Repeat(value, bytes/len(value)+1))
	return b.Commit(t.Context())
}

var puts atomic.Int64

// logFrames returns how many frames the log has.
func logFrames(t *testing.T, s *sqldb.Store) (frames int) {
	t.Helper()
	var busy, moved int
	require.NoError(t, s.Database().SQL().QueryRow("PRAGMA wal_checkpoint(NOOP)").Scan(&busy, &frames, &moved))
	return frames
}

// TestLogIsBoundedWhileClientsRead: during each commit there is a reader who began before it, so that no passive
// checkpoint finds the whole log unused. He ends when a commit waits for him.
func TestLogIsBoundedWhileClientsRead(t *testing.T) {
	frames, pages, wait := checkpointFrames, countPages, restartWait
	checkpointFrames, countPages, restartWait = 100, 20, time.Minute
	t.Cleanup(func() { checkpointFrames, countPages, restartWait = frames, pages, wait }) // after the store is closed
	s := openURL(t, newURL(t), sqlstore.Options{})
	put(t, s, "k", 1)
	for began, before := 0, 0; began < 3; {
		reader := beginRead(t, s)
		committed := make(chan error, 1)
		go func() { committed <- commitPut(t, s, "k", 50_000) }()
		end := time.AfterFunc(200*time.Millisecond, func() { _ = reader.Rollback() })
		require.NoError(t, <-committed)
		end.Stop()
		if err := reader.Rollback(); !errors.Is(err, sql.ErrTxDone) {
			require.NoError(t, err)
		}
		now := logFrames(t, s)
		require.Less(t, now, 10*checkpointFrames)
		if now < before {
			began++
		}
		before = now
	}
}

// TestCommitsDoNotWaitForALongRead, each of which would only cost it restartWait.
func TestCommitsDoNotWaitForALongRead(t *testing.T) {
	frames := checkpointFrames
	checkpointFrames = 100
	t.Cleanup(func() { checkpointFrames = frames }) // after the store is closed
	s := openURL(t, newURL(t), sqlstore.Options{})
	put(t, s, "k", 1)
	reader := beginRead(t, s)
	put(t, s, "k", restartFrames()<<12)
	conn, err := s.Database().Write().DB.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	e := &engine{checkpoints: newCheckpoints(), logger: slog.New(slog.DiscardHandler)}
	waits := func() bool {
		e.checkpoints.changed = countPages
		e.committed(t.Context(), conn, nil)
		return e.checkpoints.restartAt != restartFrames()
	}
	require.False(t, waits())
	require.NoError(t, reader.Rollback())
	_, err = conn.ExecContext(t.Context(), moveFrames)
	require.NoError(t, err)
	require.True(t, waits())
}

// TestFramesAreMovedBesideCommits: long before the log begins anew.
func TestFramesAreMovedBesideCommits(t *testing.T) {
	beside, pages := movedBeside, countPages
	movedBeside, countPages = 200, 20
	t.Cleanup(func() { movedBeside, countPages = beside, pages }) // after the store is closed
	s := openURL(t, newURL(t), sqlstore.Options{})
	for moved := 0; moved < movedBeside; time.Sleep(time.Millisecond) {
		var busy, frames int
		require.NoError(t, s.Database().SQL().QueryRow(countFrames).Scan(&busy, &frames, &moved))
		if frames < checkpointFrames/2 { // and no commit moves anything
			put(t, s, "k", 100_000)
		}
	}
}

// TestInterruptedCheckpointRestoresTheBusyTimeout, at whatever moment.
func TestInterruptedCheckpointRestoresTheBusyTimeout(t *testing.T) {
	t.Parallel()
	s := openURL(t, newURL(t), sqlstore.Options{})
	conn, err := s.Database().Write().DB.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	e := &engine{checkpoints: newCheckpoints(), logger: slog.New(slog.DiscardHandler)}
	for interrupted := 0; ; interrupted++ {
		ctx := &endingContext{Context: context.Background()}
		ctx.left.Store(int64(interrupted))
		err := e.checkpointAfterReaders(ctx, conn, restartLog)
		var timeout int64
		require.NoError(t, conn.QueryRowContext(t.Context(), "PRAGMA busy_timeout").Scan(&timeout))
		require.Equal(t, busyTimeout.Milliseconds(), timeout, "interrupted at %d", interrupted)
		if err == nil {
			return
		}
	}
}

// TestLogIsKeptAcrossStops: with its size, and nothing in it.
func TestLogIsKeptAcrossStops(t *testing.T) {
	t.Parallel()
	raw := newURL(t)
	path := parse(t, raw).Path
	s := openURL(t, raw, sqlstore.Options{})
	put(t, s, "k", 1<<20)
	size := logSize(path)
	require.Greater(t, size, int64(1<<20))
	total, _, err := s.Size(t.Context())
	require.NoError(t, err)
	require.Greater(t, total, size, "the log counts")
	require.NoError(t, s.Close())
	require.Equal(t, size, logSize(path))
	filled, err := inLog(path + logSuffix)
	require.NoError(t, err)
	require.False(t, filled)

	s = openURL(t, raw, sqlstore.Options{})
	require.Zero(t, logFrames(t, s))
	put(t, s, "k", 2)
	require.Equal(t, size, logSize(path))
	require.NoError(t, s.Defragment(t.Context()))
	require.Zero(t, logSize(path))
}

// TestLogThatGrewIsTruncated: when it begins anew.
func TestLogThatGrewIsTruncated(t *testing.T) {
	t.Parallel()
	raw := newURL(t)
	s := openURL(t, raw, sqlstore.Options{})
	b := s.BeginBatchWrite()
	for i := range 10 {
		b.Put(fmt.Append(nil, i), make([]byte, keptLog/8))
	}
	require.NoError(t, b.Commit(t.Context()))
	require.Greater(t, logSize(parse(t, raw).Path), int64(keptLog))
	eventually.True(t, "the log is truncated", func() bool { // once no checkpoint beside commits hinders this one
		put(t, s, "k", 10)
		_, err := s.Database().SQL().Exec("PRAGMA wal_checkpoint(RESTART)")
		require.NoError(t, err)
		return logSize(parse(t, raw).Path) <= keptLog
	})
}

// TestOtherVersionOfSQLiteHasItsOwnVFS also fails when the driver's SQLite is a new one: read what it does with a VFS,
// above all for its log, and then change checkedVersion.
func TestOtherVersionOfSQLiteHasItsOwnVFS(t *testing.T) {
	require.Equal(t, checkedVersion, sqlite3.SQLITE_VERSION)
	version = "3.0.0"
	defer func() { version = sqlite3.SQLITE_VERSION }()
	name, err := chooseVFS()
	require.NoError(t, err)
	require.Empty(t, name)
	raw := newURL(t)
	s := openURL(t, raw, sqlstore.Options{})
	for i := range 20 {
		put(t, s, strconv.Itoa(i), 8<<20)
	}
	require.Less(t, logFrames(t, s), 3*checkpointFrames, "it was begun anew")
	require.NoError(t, s.Close())
	require.NoFileExists(t, parse(t, raw).Path+logSuffix, "as that VFS does it")
}

func TestRewriteLogKeepsIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x"+logSuffix)
	content := make([]byte, 3<<20+17)
	for i := range content {
		content[i] = byte(i / 1000)
	}
	require.NoError(t, os.WriteFile(path, content, 0o600))
	before, err := os.Stat(path)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		require.NoError(t, rewriteLog(path))
		after, err := os.Stat(path)
		require.NoError(t, err)
		return after.ModTime().After(before.ModTime())
	}, time.Minute, time.Millisecond, "it is written")
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, content, got)
	require.Error(t, rewriteLog(path+"none"))
}

// TestLogThatCannotBeRewrittenIsRefused: it may not be on disk.
func TestLogThatCannotBeRewrittenIsRefused(t *testing.T) {
	raw := newURL(t)
	s := openURL(t, raw, sqlstore.Options{})
	put(t, s, "k", 10)
	crashed := copyOf(t, parse(t, raw).Path)
	rewrite := rewriteLog
	rewriteLog = func(string) error { return os.ErrInvalid }
	defer func() { rewriteLog = rewrite }()
	db, err := OpenDB(parse(t, crashed), sqlstore.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	err = migrations.Up(t.Context(), db.DialectName(), db.SQL())
	require.ErrorIs(t, err, os.ErrInvalid)
	require.ErrorIs(t, err, errLog)
	rewriteLog = rewrite
	require.ErrorIs(t, migrations.Up(t.Context(), db.DialectName(), db.SQL()), errLog, "the next connection")
	filled, err := inLog(parse(t, crashed).Path + logSuffix)
	require.NoError(t, err)
	require.True(t, filled, "closing the connection does not move it")
}

// TestInterruptedStartLeavesTheLogToTheNextProcess, as a look does.
func TestInterruptedStartLeavesTheLogToTheNextProcess(t *testing.T) {
	t.Parallel()
	raw := newURL(t)
	s := openURL(t, raw, sqlstore.Options{})
	put(t, s, "k", 5000)
	for interrupted := 0; ; interrupted++ {
		crashed := parse(t, copyOf(t, parse(t, raw).Path))
		base, err := connect(crashed, false, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		ctx := &endingContext{Context: context.Background()}
		ctx.left.Store(int64(interrupted))
		conn, err := base.Connect(ctx)
		if err == nil {
			require.NoError(t, conn.Close())
			require.Greater(t, interrupted, 10)
			return
		}
		require.ErrorIs(t, err, context.Canceled)
		filled, err := inLog(crashed.Path + logSuffix)
		require.NoError(t, err)
		require.True(t, filled, "interrupted at %d", interrupted)
	}
}

// endingContext ends when it has been asked left times.
type endingContext struct {
	context.Context
	left atomic.Int64
}

func (c *endingContext) Done() <-chan struct{} {
	done := make(chan struct{})
	if c.left.Add(-1) < 0 {
		close(done)
	}
	return done
}

func (c *endingContext) Err() error {
	if c.left.Load() < 0 {
		return context.Canceled
	}
	return nil
}

// TestALookLeavesTheLogToTheNextProcess, which writes it again before it moves it: it may not be on disk.
func TestALookLeavesTheLogToTheNextProcess(t *testing.T) {
	t.Parallel()
	raw := newURL(t)
	s := openURL(t, raw, sqlstore.Options{})
	put(t, s, "k", 5000)
	crashed := copyOf(t, parse(t, raw).Path)
	files := func() (content [2][]byte) {
		for i, suffix := range []string{"", logSuffix} {
			var err error
			content[i], err = os.ReadFile(parse(t, crashed).Path + suffix)
			require.NoError(t, err)
		}
		return content
	}
	before := files()
	look, err := opener.Open(t.Context(), parse(t, crashed), sqlstore.Options{ReadOnly: true, Shared: true})
	require.NoError(t, err)
	value, err := look.Get(t.Context(), []byte("k"))
	require.NoError(t, err)
	require.Greater(t, len(value), 5000)
	require.NoError(t, look.Close())
	require.Equal(t, before, files())

	require.NoError(t, openURL(t, crashed, sqlstore.Options{}).Close())
	require.NotEqual(t, before, files())
}

// TestLogThatIsMovedInPartIsRefused: a process that has ended may not have flushed that part, and as another program
// has the database open, SQLite would not move it again.
func TestLogThatIsMovedInPartIsRefused(t *testing.T) {
	t.Parallel()
	raw := newURL(t)
	s := openURL(t, raw, sqlstore.Options{})
	for i := range 10 {
		put(t, s, strconv.Itoa(i), 5000)
	}
	other, err := sql.Open("sqlite", parse(t, raw).Path)
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close()) }()
	reader, err := other.Begin()
	require.NoError(t, err)
	var n int
	require.NoError(t, reader.QueryRow("SELECT count(*) FROM object").Scan(&n))
	put(t, s, "k", 5000)
	_, err = s.Database().SQL().Exec(moveFrames)
	require.NoError(t, err)
	require.NoError(t, s.Close())

	db, err := OpenDB(parse(t, raw), sqlstore.Options{})
	require.NoError(t, err)
	require.ErrorIs(t, migrations.Up(t.Context(), db.DialectName(), db.SQL()), errLog)
	require.NoError(t, db.Close())
	require.NoError(t, reader.Rollback())
	require.NoError(t, openURL(t, copyOf(t, parse(t, raw).Path), sqlstore.Options{}).Close(), "if none has it open")
}

// copyOf returns the URL of a copy of the database at path, as a crash leaves it.
func copyOf(t *testing.T, path string) string {
	t.Helper()
	crashed := newURL(t)
	after := parse(t, crashed).Path
	require.NoError(t, os.Mkdir(filepath.Dir(after), 0o700))
	for _, suffix := range []string{"", logSuffix} {
		content, err := os.ReadFile(path + suffix)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(after+suffix, content, 0o600))
	}
	return crashed
}

// TestNewDirectoriesAreFlushed: their names are on disk before anything is acknowledged.
func TestNewDirectoriesAreFlushed(t *testing.T) {
	plain := flushDir
	defer func() { flushDir = plain }()
	var flushed []string
	flushDir = func(path string) error {
		flushed = append(flushed, path)
		return plain(path)
	}
	dir := t.TempDir()
	openURL(t, "sqlite://"+filepath.Join(dir, "a", "b", "x.db"), sqlstore.Options{})
	require.Subset(t, flushed, []string{dir, filepath.Join(dir, "a"), filepath.Join(dir, "a", "b")})
}
