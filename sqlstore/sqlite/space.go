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

// FreeSpace implements sqldb.Engine.
func (e *engine) FreeSpace() (free, reserve int64, err error) {
	free, total, err := fileSystem(e.path)
	reserve = min(max(total/reserveShare, minReserve), maxReserve)
	e.low.Store(free < reserve+int64(checkpointFrames)<<12)
	return free, reserve, err
}

// releaseLog gives the log's space back to a disk that is nearly full.
func (e *engine) releaseLog(ctx context.Context, db *sqldb.Database) error {
	if free, reserve, err := e.FreeSpace(); err != nil || free >= reserve {
		return err
	}
	return e.truncateLog(ctx, db)
}
