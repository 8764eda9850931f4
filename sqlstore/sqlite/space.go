package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// The reserve is a sixteenth of the file system, within these bounds: what is deleted takes space in the log, and in the
// table until it is compacted. A commit of 4 MiB takes minReserve, in the log and in the file.
const (
	reserveShare = 16
	minReserve   = 8 << 20
	maxReserve   = 128 << 20
)

// FreeSpace implements sqldb.Engine. What the file needs for what is only in the log is not free: the log keeps its
// space until all of it is moved. A file system without a limit, or one that does not say its size, has no reserve.
func (e *engine) FreeSpace() (free, reserve int64, err error) {
	free, total, err := fileSystem(e.path)
	if err != nil || total == 0 {
		return 0, 0, err
	}
	reserve = min(max(total/reserveShare, minReserve), maxReserve)
	free = max(0, free-e.growth.Load())
	e.low.Store(free < reserve+int64(checkpointFrames)<<12)
	if e.low.Load() && logSize(e.path) >= reserve/4 {
		e.checkpoints.request() // commits would release the log, and they may be refused
	}
	return free, reserve, nil
}

// measureGrowth records by how many bytes the file grows when the log's last frames are moved. Most of them may be of
// pages that it has, or of one page. The file may have holes, where a page has a newer frame that is still needed; on a
// file system that compresses, it takes less than its size.
func (e *engine) measureGrowth(ctx context.Context, conn *sql.Conn, frames int) {
	growth := int64(frames) << 12
	if growth > 0 {
		var size int64
		if err := conn.QueryRowContext(ctx, databaseSize).Scan(&size); err == nil {
			growth = min(growth, max(0, size-allocated(e.path)))
		}
	}
	e.growth.Store(growth)
}

const databaseSize = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"

// fileNeedsSpace returns sqlstore.ErrFull if a commit to the log might take the space that the file needs for what is
// in the log already. Without that, nothing could be written again.
func (e *engine) fileNeedsSpace() error {
	if !e.low.Load() {
		return nil
	}
	free, _, err := e.FreeSpace()
	if err != nil || free >= minReserve || e.growth.Load() == 0 {
		return nil //nolint:nilerr // the commit shows whether it has space
	}
	return fmt.Errorf("%w: a read keeps the log from being moved into the file, which needs the rest", sqlstore.ErrFull)
}

// releaseLog gives the log's space back to a disk that is nearly full. Errors: also those of fileNeedsSpace.
func (e *engine) releaseLog(ctx context.Context, db *sqldb.Database) error {
	if free, reserve, err := e.FreeSpace(); err != nil || free >= reserve {
		return err
	}
	return errors.Join(e.truncateLog(ctx, db), e.fileNeedsSpace())
}
