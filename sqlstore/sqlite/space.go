package sqlite

import (
	"context"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// The reserve is a sixteenth of the file system, and no more than maxReserve: what is deleted takes space in the log,
// and in the table until it is compacted.
const (
	reserveShare = 16
	maxReserve   = 128 << 20
)

// FreeSpace implements sqldb.Engine.
func (e *engine) FreeSpace() (free, reserve int64, err error) {
	free, total, err := fileSystem(e.path)
	reserve = min(total/reserveShare, maxReserve)
	e.low.Store(free < reserve)
	return free, reserve, err
}

// releaseLog gives the log's space back to a disk that is nearly full.
func (e *engine) releaseLog(ctx context.Context, db *sqldb.Database) error {
	if free, reserve, err := e.FreeSpace(); err != nil || free >= reserve {
		return err
	}
	return e.truncateLog(ctx, db)
}
