package doctor

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/fence"
)

// watched returns the rows of fence.WatchedKeys in one snapshot, nil for one that does not exist. It reports false as
// ask does.
func (e *examination) watched(ctx context.Context, check string) (values [][]byte, ok bool) {
	keys := fence.WatchedKeys()
	values = make([][]byte, len(keys))
	rows, err := e.conn.QueryContext(ctx, "SELECT internal_key, object_value FROM object WHERE internal_key IN (?, ?)", keys[0], keys[1])
	if err != nil {
		e.broken(check, err)
		return nil, false
	}
	defer rows.Close() //nolint:errcheck // Err has what matters
	for rows.Next() {
		var key, value []byte
		if err := rows.Scan(&key, &value); err != nil {
			e.broken(check, err)
			return nil, false
		}
		for i := range keys {
			if bytes.Equal(key, keys[i]) {
				values[i] = value
			}
		}
	}
	if err := rows.Err(); err != nil {
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
	lost, _ := coder.DecodeLost(rows[0]) // DecodeWatched has decoded it
	e.add(check, Warn, fmt.Sprintf("member %x recorded at %s that revision %d was missing, and the table is at %d now, so that members serve", lost.Member,
		time.Unix(lost.At, 0).UTC().Format(time.RFC3339), lost.Revision, cur.Revision),
		"if the database is the right one again, nothing is lost; if others wrote as much as was lost, stop all members and run sqlbrain recover")
}
