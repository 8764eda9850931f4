package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

const (
	inRange = " WHERE internal_key >= ? AND internal_key <= ?"
	live    = inRange + " AND ASCII(SUBSTRING(object_value, " + sqldb.FlagsAt + ")) & 1 = 0"
	// checksumText sums up the keys and row versions of live index rows.
	checksumText = "SELECT COUNT(*), COALESCE(SUM(CRC32(CONCAT(internal_key, SUBSTRING(object_value, " +
		sqldb.RowVersionAt + ")))), 0) FROM object" + live
	deleteRangeText = "UPDATE object SET object_value = CONCAT(x'01', ?, SUBSTRING(object_value, " + sqldb.RowVersionAt +
		"), REPEAT(x'00', 24), x'01')" + live
)

// deleteRange makes d by a statement for all its keys. It reports false, and changes nothing, if the live index rows
// from the first to the last are not those that d replaces, or if there are too many others. The fence row must be
// locked: no other leader changes them.
func (t *transaction) deleteRange(ctx context.Context, d *sqldb.Deletion) (done bool, err error) {
	var beyond []byte
	err = t.conn.QueryRowContext(ctx, sqldb.SeekNthText, d.First, d.Last, d.MostRows()).Scan(&beyond)
	if !errors.Is(err, sql.ErrNoRows) {
		return false, err
	}
	var rows int
	var sum, expected uint64
	if err := t.conn.QueryRowContext(ctx, checksumText, d.First, d.Last).Scan(&rows, &sum); err != nil {
		return false, err
	}
	for i := range d.Swaps {
		expected += uint64(crc32.ChecksumIEEE(slices.Concat(d.Swaps[i].Key, d.OldRevision(i))))
	}
	if rows != len(d.Swaps) || sum != expected {
		return false, nil
	}
	result, err := t.conn.ExecContext(ctx, deleteRangeText, d.Revision, d.First, d.Last)
	if err != nil {
		return false, err
	}
	if n, err := result.RowsAffected(); err != nil || n != int64(rows) {
		return false, errors.Join(err, fmt.Errorf("mysql: %d rows were deleted, %d were due", n, rows))
	}
	return true, nil
}
