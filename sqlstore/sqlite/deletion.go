package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

const (
	inRange = " WHERE internal_key >= ?1 AND internal_key <= ?2"
	live    = " substr(object_value, " + sqldb.FlagsAt + ") IN (x'00', x'02')"
	// oldRevisionsText returns the row versions of live index rows in key order. Of a range of more than ?3 rows it
	// lacks the last.
	oldRevisionsText = "SELECT CAST(group_concat(substr(object_value, " + sqldb.RowVersionAt + "), '') AS BLOB) " +
		"FROM (SELECT object_value FROM object" + inRange + " ORDER BY internal_key LIMIT ?3) WHERE" + live
	// After a failure the whole transaction is rolled back.
	deleteRangeText = "UPDATE OR FAIL object SET object_value = CAST(x'01' || ?3 || substr(object_value, " +
		sqldb.RowVersionAt + ") || zeroblob(24) || x'01' AS BLOB)" + inRange + " AND" + live
)

// deleteRange makes d by a statement for all its keys. It reports false, and changes nothing, if the live index rows
// from the first to the last are not those that d replaces, or if there are too many others.
func deleteRange(ctx context.Context, c *sqldb.Conn, d *sqldb.Deletion) (done bool, err error) {
	rows, err := c.QueryContext(ctx, oldRevisionsText, numbered(d.First, d.Last, int64(d.MostRows())))
	if err != nil {
		return false, err
	}
	var found [1]driver.Value
	if err := errors.Join(rows.Next(found[:]), rows.Close()); err != nil {
		return false, err
	}
	if old, _ := found[0].([]byte); !bytes.Equal(old, d.OldRevisions()) {
		return false, nil
	}
	result, err := c.ExecContext(ctx, deleteRangeText, numbered(d.First, d.Last, d.Revision))
	if err != nil {
		return false, err
	}
	if n, err := result.RowsAffected(); err != nil || n != int64(len(d.Swaps)) {
		return false, errors.Join(err, fmt.Errorf("sqlite: %d rows were deleted, %d were due", n, len(d.Swaps)))
	}
	return true, nil
}

func numbered(values ...any) []driver.NamedValue {
	args := make([]driver.NamedValue, len(values))
	for i, v := range values {
		args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return args
}
