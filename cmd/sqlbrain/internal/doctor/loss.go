package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/fence"
)

// row returns a row of the table, nil if there is none. It reports false as ask does.
func (e *examination) row(ctx context.Context, check string, key []byte) (value []byte, ok bool) {
	err := e.conn.QueryRowContext(ctx, "SELECT object_value FROM object WHERE internal_key = ?", key).Scan(&value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		e.broken(check, err)
		return nil, false
	}
	return value, true
}

// loss reports whether a member recorded that the database lost data.
func (e *examination) loss(ctx context.Context) {
	const check = "loss"
	raw, ok := e.row(ctx, check, coder.LostKey())
	if !ok {
		return
	}
	if raw == nil {
		e.ok(check, "no member recorded that data was lost")
		return
	}
	chain, ok := e.row(ctx, check, coder.ChainKey())
	if !ok {
		return
	}
	lost, err := coder.DecodeLost(raw)
	var cur coder.Chain
	if err == nil && chain != nil {
		cur, err = coder.DecodeChain(chain)
	}
	if err == nil {
		err = fence.JudgeLost(lost, cur)
	}
	if err != nil {
		e.add(check, Fail, err.Error(), "no member serves: see sqlbrain recover")
		return
	}
	e.add(check, Warn, fmt.Sprintf("member %x recorded at %s that revision %d was missing, and the table is at %d now, so that members serve", lost.Member,
		time.Unix(lost.At, 0).UTC().Format(time.RFC3339), lost.Revision, cur.Revision),
		"if the database is the right one again, nothing is lost; if others wrote as much as was lost, stop all members and run sqlbrain recover")
}
