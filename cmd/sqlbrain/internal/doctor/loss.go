package doctor

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// watched returns the rows of fence.WatchedKeys in one snapshot, nil for one that does not exist. It reports false as
// ask does.
func (e *examination) watched(ctx context.Context, check string) (values [][]byte, ok bool) {
	keys := fence.WatchedKeys()
	values = make([][]byte, len(keys))
	const text = "SELECT internal_key, object_value FROM object WHERE internal_key IN (?, ?)"
	err := sqldb.EachRow(ctx, e.conn, text, []any{keys[0], keys[1]}, func(rows *sql.Rows) (bool, error) {
		var key, value []byte
		if err := rows.Scan(&key, &value); err != nil {
			return false, err
		}
		if i := slices.IndexFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) }); i >= 0 {
			values[i] = value
		}
		return true, nil
	})
	if err != nil {
		e.broken(check, err)
		return nil, false
	}
	return values, true
}

// loss reports whether a member recorded that the database lost data.
func (e *examination) loss(ctx context.Context) {
	const check = "loss"
	rows, ok := e.watched(ctx, check)
	if !ok {
		return
	}
	if rows[0] == nil {
		e.ok(check, "no member recorded that data was lost")
		return
	}
	cur, err := fence.DecodeWatched(rows)
	if err != nil {
		e.add(check, Fail, err.Error(), "no member serves: see sqlbrain recover")
		return
	}
	lost, _ := coder.DecodeDataLoss(rows[0]) // DecodeWatched has decoded it
	e.add(check, Warn, fmt.Sprintf("member %x recorded at %s that revision %d was missing, and the table is at %d now, "+
		"so that members serve", lost.Member,
		time.Unix(lost.At, 0).UTC().Format(time.RFC3339), lost.Revision, cur.Revision),
		"if the database is the right one again, nothing is lost; if others wrote as much as was lost, stop all members "+
			"and run sqlbrain recover")
}
