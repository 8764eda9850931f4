package sqlite

import (
	"context"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// The reserve is a sixteenth of the file system, within these bounds: what is deleted takes space in the log, and in the
// table until it is compacted. A commit of 4 MiB takes minReserve, in the log and in the file.
const (
	reserveShare = 16
	minReserve   = 8 << 20
	maxReserve   = 128 << 20
)

// FreeSpace implements sqldb.Engine. A file system without a limit, or one that does not say its size, has no reserve.
func (e *engine) FreeSpace() (free, reserve int64, err error) {
	free, total, err := fileSystem(e.path)
	if err != nil || total == 0 {
		return 0, 0, err
	}
	reserve = min(max(total/reserveShare, minReserve), maxReserve)
	e.low.Store(free < reserve+int64(checkpointFrames)<<12)
	return free, reserve, nil
}

// releaseLog gives the log's space back to a disk that is nearly full.
func (e *engine) releaseLog(ctx context.Context, db *sqldb.Database) error {
	if free, reserve, err := e.FreeSpace(); err != nil || free >= reserve {
		return err
	}
	return e.truncateLog(ctx, db)
}
