package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// The log has a frame for each page that a commit changed. A checkpoint moves frames into the
// database. When all are moved and no connection reads the log, the next commit begins the log anew, in
// the same file. SQLite would make checkpoints by itself, within commits, and hide their errors; so that
// is switched off, and they are made here.
//
// Most frames are moved beside commits, on a connection that reads, movedBeside or more at a time: a commit that
// moved them would be the slowest of its second. Once the log has checkpointFrames, a commit moves the few that are
// left, so that the log can begin anew.
//
// A passive checkpoint waits for nothing. While clients read the table all the time, there is always a
// reader that needs the log, and it only grows. Then a restarting one waits for the readers of that
// moment, for restartWait at most, while commits wait for it. If a reader takes longer than that, it is
// tried again when the log has grown by a quarter; not at all while one such as a backup needs checkpointFrames of it.
// So the log has twice checkpointFrames, or a quarter more than it had when the longest read ended.

// keptLog is the size in bytes to which a log that grew beyond it is truncated, by as much each time it begins anew.
const keptLog = 64 << 20

// Tests replace these.
var (
	// checkpointFrames: fewer checkpoints make a third to twice as many more writes a second, at the cost of an
	// occasional slow write and a log of about 40 MB.
	checkpointFrames = 10_000
	movedBeside      = 2_500
	// countPages is the number of changed pages, as estimated, after which the log's frames are counted.
	countPages  = 500
	restartWait = 100 * time.Millisecond
)

func restartFrames() int { return 2 * checkpointFrames }

// checkpoints decides when to make a checkpoint.
type checkpoints struct {
	// Used with the connection that writes in hand:
	changed   int // pages, as estimated, since the frames were counted
	restartAt int // frames from which readers are waited for

	due    chan struct{} // asks for one beside commits
	moving sync.Mutex    // held by one that moves frames: SQLite permits one at a time
	logged time.Time     // when a failure was logged last; under moving
	total  *prometheus.CounterVec
}

func newCheckpoints() *checkpoints {
	c := &checkpoints{due: make(chan struct{}, 1), restartAt: restartFrames(),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sqlbrain_sqlite_checkpoints_total",
			Help: "Checkpoints of the SQLite database, which move its write-ahead log into it: complete, partial (something " +
				"reads an older state), or failed.",
		}, []string{"result"})}
	for _, result := range []string{"complete", "partial", "failed"} {
		c.total.WithLabelValues(result)
	}
	return c
}

// request asks for a checkpoint beside commits.
func (c *checkpoints) request() {
	select {
	case c.due <- struct{}{}:
	default:
	}
}

// committed is called after a commit of ops. A checkpoint that fails does not undo them.
func (e *engine) committed(ctx context.Context, conn *sql.Conn, ops []sqlstore.Op) {
	c := e.checkpoints
	for _, op := range ops {
		c.changed += 2 + (len(op.Key)+len(op.Value))>>12 // a page of each tree
	}
	statement := countFrames
	switch {
	case e.low.Load():
		// The log must not grow: it would take the space that the file needs for what is in the
		// log, and then neither could be written.
		statement = moveFrames
	case c.changed < countPages:
		return
	}
	c.changed = 0
	frames, moved, err := e.checkpoint(ctx, conn, statement)
	if frames < checkpointFrames {
		c.restartAt = restartFrames()
	}
	switch left := frames - moved; {
	case err != nil:
	case frames >= c.restartAt && left < checkpointFrames:
		c.restartAt = frames + frames/4
		_ = e.checkpointAfterReaders(ctx, conn, restartLog) // logged
	case left >= movedBeside:
		c.request()
	case frames >= checkpointFrames && left > 0 && statement == countFrames:
		_, _, _ = e.checkpoint(ctx, conn, moveFrames) // logged
	}
}

// checkpointBesideCommits makes checkpoints when commits or FreeSpace ask for one, until ctx ends.
func (e *engine) checkpointBesideCommits(ctx context.Context, db *sqldb.Database) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.checkpoints.due:
		}
		conn, err := db.Read().DB.Conn(ctx)
		if err != nil {
			continue // they ask again
		}
		// They asked during the last one as well, which has moved most of it.
		low := e.low.Load()
		frames, moved, err := e.checkpoint(ctx, conn, countFrames)
		if err == nil && (low || frames-moved >= movedBeside) {
			frames, moved, err = e.checkpoint(ctx, conn, moveFrames) // logged
		}
		_ = conn.Close()                          // only returns it to the pool
		if low && err == nil && moved == frames { // otherwise commits would wait for a long read in vain
			_ = e.truncateLog(ctx, db) // logged
		}
	}
}

// checkpointAfterReaders waits for readers, for restartWait at most.
func (e *engine) checkpointAfterReaders(ctx context.Context, conn *sql.Conn, text string) (err error) {
	defer func() { err = errors.Join(err, setBusyTimeout(context.WithoutCancel(ctx), conn, busyTimeout)) }()
	if err := setBusyTimeout(ctx, conn, restartWait); err != nil { // it may be set
		return err
	}
	_, _, err = e.checkpoint(ctx, conn, text)
	return err
}

// truncateLog moves the log into the file and gives its space back, as far as readers permit.
func (e *engine) truncateLog(ctx context.Context, db *sqldb.Database) error {
	conn, err := db.Write().DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() // only returns it to the pool
	return e.checkpointAfterReaders(ctx, conn, truncateFile)
}

// The statements of a checkpoint. One with NOOP only counts, and one with TRUNCATE gives the log's space back as well.
const (
	countFrames  = "PRAGMA wal_checkpoint(NOOP)"
	moveFrames   = "PRAGMA wal_checkpoint(PASSIVE)"
	restartLog   = "PRAGMA wal_checkpoint(RESTART)"
	truncateFile = "PRAGMA wal_checkpoint(TRUNCATE)"
)

const busyTimeoutText = "PRAGMA busy_timeout = %d" // milliseconds

// checkpoint executes one of them, and returns how many frames the log has, and how many of them the database has. It
// logs a failure, at most once a minute.
func (e *engine) checkpoint(ctx context.Context, conn *sql.Conn, text string) (frames, moved int, err error) {
	c := e.checkpoints
	if text != countFrames {
		c.moving.Lock()
		defer c.moving.Unlock()
	}
	var busy int
	err = conn.QueryRowContext(ctx, text).Scan(&busy, &frames, &moved)
	exitIfFlushFailed(e.logger, e.path, err)
	if err == nil {
		e.measureGrowth(ctx, conn, frames-moved)
	}
	switch {
	case err != nil && ctx.Err() != nil || text == countFrames:
	case err != nil:
		c.total.WithLabelValues("failed").Inc()
		if now := time.Now(); now.Sub(c.logged) >= time.Minute {
			c.logged = now
			e.logger.ErrorContext(ctx, "failed to checkpoint the SQLite database; its write-ahead log grows", "error", err,
				"log_bytes", logSize(e.path))
		}
	case busy != 0 || moved < frames:
		c.total.WithLabelValues("partial").Inc()
	default:
		c.total.WithLabelValues("complete").Inc()
	}
	return frames, moved, err
}

func setBusyTimeout(ctx context.Context, conn *sql.Conn, d time.Duration) error {
	_, err := conn.ExecContext(ctx, fmt.Sprintf(busyTimeoutText, d.Milliseconds()))
	return err
}

// exit ends the process. Tests replace it.
var exit = os.Exit

// exitIfFlushFailed ends the process if err says that the log or the database could not be flushed to
// disk. Linux then takes the data for flushed, so that the next flush succeeds without them: what the
// process acknowledged later might depend on data that are not on disk. The next process writes the log
// again, and moves all of it into the database again.
func exitIfFlushFailed(logger *slog.Logger, path string, err error) {
	var s *sqlite.Error
	if errors.As(err, &s) && (s.Code() == sqlite3.SQLITE_IOERR_FSYNC || s.Code() == sqlite3.SQLITE_IOERR_DIR_FSYNC) {
		const text = "the SQLite database could not be flushed to disk, and what it says about its data cannot be relied " +
			"on until it is " +
			"opened again; the process exits. Look for errors of the disk in the kernel's log, then start it again"
		logger.Error(text, "file", path, "error", err)
		if !logger.Enabled(context.Background(), slog.LevelError) { // as in commands
			fmt.Fprintf(os.Stderr, "%s: %v: %s\n", path, err, text)
		}
		exit(1)
	}
}
