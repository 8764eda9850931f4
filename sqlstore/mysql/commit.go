package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// A commit is one multi-row upsert if the upsert can express all its changes (see
// conditional): one round trip, atomic by itself, and twice as fast as a transaction. A
// row that exists is replaced only if it is versioned (see package coder) and holds the row
// version that the new value replaces. Otherwise the statement fails and nothing of it is done.
//
// The failing branch must fail in every sql_mode, and only when it is reached.
// ~0 + n is out of the range of BIGINT UNSIGNED for every n above 0. n is not constant, so
// no optimizer evaluates it early. NULL would fail only in strict mode, and otherwise
// write an empty value.
//
// For the fence row, the terms are compared as well. After a database lost commits, the
// row may again hold a row version that a leader of an earlier term expects. The answer has an insert id if the fence
// row was replaced. Only IF is known not to evaluate the other branch.
const (
	upsertHead      = "INSERT INTO object (internal_key, object_value) VALUES "
	conditionalTail = " ON DUPLICATE KEY UPDATE object_value = IF(" +
		"RIGHT(VALUES(internal_key), 8) = " + sqldb.ZeroRowVersion +
		" AND SUBSTRING(VALUES(object_value), " + sqldb.PrevRowVersionAt + ") <> " + sqldb.ZeroRowVersion +
		" AND SUBSTRING(object_value, " + sqldb.RowVersionAt + ") = SUBSTRING(VALUES(object_value), " +
		sqldb.PrevRowVersionAt + ")" +
		" AND (internal_key <> " + sqldb.FenceKey + " OR SUBSTRING(object_value, " + sqldb.TermAt +
		") = SUBSTRING(VALUES(object_value), " + sqldb.TermAt + "))," +
		" IF(internal_key = " + sqldb.FenceKey + ", IF(LAST_INSERT_ID(LENGTH(object_value)) > 0, VALUES(object_value), '')," +
		" VALUES(object_value)), ~0 + (LENGTH(object_value) + 1))"
	putTail = " ON DUPLICATE KEY UPDATE object_value = VALUES(object_value)"
)

const (
	// singleRows bounds the rows of a one-statement commit: far below the 65,535
	// placeholders of a statement, and beyond what batching gains by.
	singleRows = 4000
	// chunkRows and chunkBytes bound a statement of a transaction. So many rows are never
	// prepared, and if the packet had to be, it may have 65,535 placeholders.
	chunkRows  = 20_000
	chunkBytes = 4 << 20
	// keptRows bounds the rows of a statement whose text is kept.
	keptRows = 1000
	// rowOverhead is what a row takes in a packet in addition to key and value.
	rowOverhead = 32
)

// conditional reports whether the upsert above does exactly what op means. The value of
// an op on a versioned row names the row version it replaces, and 0 stands for none. Rows of
// row version 0 therefore need a transaction, and so does a change of the fence row's term.
func conditional(op sqlstore.Op) bool {
	_, prev, versioned := coder.RowVersions(op.Value)
	switch op.Kind {
	case sqlstore.OpPutIfNotExist:
		return !endsInZeros(op.Key) || versioned && prev == 0
	case sqlstore.OpCAS, sqlstore.OpCASOrPut:
		return op.SwapsRowVersion() && prev != 0 && keepsTerm(op)
	}
	return false
}

// keepsTerm reports whether op leaves the fence row's term as it is.
func keepsTerm(op sqlstore.Op) bool {
	if !bytes.Equal(op.Key, coder.FenceKey()) {
		return true
	}
	before, err := coder.DecodeFenceToken(op.Old)
	if err != nil {
		return false
	}
	after, err := coder.DecodeFenceToken(op.Value)
	return err == nil && after.Term == before.Term
}

func endsInZeros(key []byte) bool {
	return len(key) >= 8 && binary.BigEndian.Uint64(key[len(key)-8:]) == 0
}

// Commit implements sqldb.Engine. It reorders ops.
func (e *engine) Commit(info sqldb.Info, ops []sqlstore.Op) (statement string, attempt sqldb.Attempt) {
	// The fence row comes first: a commit that lost the race waits or fails there, before
	// it locks other rows. The others follow in key order: no two commits deadlock, and the
	// tree is written in order.
	token := coder.FenceKey()
	slices.SortFunc(ops, func(a, b sqlstore.Op) int {
		aToken, bToken := bytes.Equal(a.Key, token), bytes.Equal(b.Key, token)
		switch {
		case aToken && !bToken:
			return -1
		case bToken && !aToken:
			return 1
		}
		return bytes.Compare(a.Key, b.Key)
	})
	if comparesFew(info, ops) {
		return "commit_single", func(ctx context.Context, conn *sql.Conn) (bool, error) {
			return e.compareFew(ctx, conn, ops)
		}
	}
	if fitsOne(info, ops) {
		return "commit_single", func(ctx context.Context, conn *sql.Conn) (bool, error) {
			return e.commitSingle(ctx, conn, ops)
		}
	}
	return "commit_tx", func(ctx context.Context, conn *sql.Conn) (bool, error) { return e.commitTx(ctx, conn, info, ops) }
}

// The swaps of whole values that one statement makes. The second one changes both rows or none.
const (
	swapOne = "UPDATE object SET object_value = ? WHERE internal_key = ? AND object_value = ?"
	swapTwo = "UPDATE object a JOIN object b SET a.object_value = ?, b.object_value = ?" +
		" WHERE a.internal_key = ? AND a.object_value = ? AND b.internal_key = ? AND b.object_value = ?"
)

// comparesFew reports whether ops are one or two swaps that compare the whole value of a row, such as the heartbeat of
// a member, or the swap of the lock with a challenge of its holder.
func comparesFew(info sqldb.Info, ops []sqlstore.Op) bool {
	size, most := 0, 2
	if info.Product == productTiDB {
		most = 1 // a table that a statement updates twice has not been tried there
	}
	whole := false
	for _, op := range ops {
		if op.Kind != sqlstore.OpCAS {
			return false
		}
		whole = whole || !conditional(op)
		size += len(op.Key) + len(op.Value) + len(op.Old) + rowOverhead
	}
	return whole && len(ops) <= most && size <= info.MaxPacket-packetMargin
}

// compareFew swaps the values of one or two rows: one round trip where a transaction takes four or five.
func (e *engine) compareFew(ctx context.Context, conn *sql.Conn, ops []sqlstore.Op) (again bool, err error) {
	var result sql.Result
	a, b := ops[0], ops[len(ops)-1]
	if len(ops) == 1 {
		result, err = conn.ExecContext(ctx, swapOne, sqldb.NotNil(a.Value), sqldb.NotNil(a.Key), sqldb.NotNil(a.Old))
	} else {
		result, err = conn.ExecContext(ctx, swapTwo, sqldb.NotNil(a.Value), sqldb.NotNil(b.Value),
			sqldb.NotNil(a.Key), sqldb.NotNil(a.Old), sqldb.NotNil(b.Key), sqldb.NotNil(b.Old))
	}
	if err != nil {
		return e.outcome(ctx, err)
	}
	switch affected, err := result.RowsAffected(); {
	case err != nil:
		return false, sqldb.Uncertain(ctx, err)
	case affected == 0:
		return false, &sqlstore.Conflict{}
	case affected != int64(len(ops)):
		return false, sqldb.Uncertain(ctx, fmt.Errorf("the commit changed %d rows by the server's count, %d were due",
			affected, len(ops)))
	}
	return false, nil
}

func fitsOne(info sqldb.Info, ops []sqlstore.Op) bool {
	if len(ops) > singleRows {
		return false
	}
	size := len(conditionalTail)
	for _, op := range ops {
		if !conditional(op) {
			return false
		}
		size += len(op.Key) + len(op.Value) + rowOverhead
	}
	return size <= info.MaxPacket-packetMargin
}

// commitSingle sends the one statement. again says that nothing was written and
// that it may succeed if repeated.
func (e *engine) commitSingle(ctx context.Context, conn *sql.Conn, ops []sqlstore.Op) (again bool, err error) {
	result, err := conn.ExecContext(ctx, e.upserts.text(conditionalTail, len(ops)), rowArgs(ops)...)
	if err != nil {
		return e.outcome(ctx, err)
	}
	affected, err := result.RowsAffected()
	if err != nil {
		return false, sqldb.Uncertain(ctx, err)
	}
	low, high := expectedRows(ops)
	switch {
	case affected < low:
		return false, fmt.Errorf("%w: the commit changed %d rows by the server's count, at least %d were due",
			sqlstore.ErrRowMissing, affected, low)
	case affected > high:
		return false, sqldb.Uncertain(ctx, fmt.Errorf(
			"the commit changed %d rows by the server's count, at most %d were due", affected, high))
	case affected < high && ops[0].Kind == sqlstore.OpCAS && bytes.Equal(ops[0].Key, coder.FenceKey()):
		// A row that CASOrPut inserted, or one that CAS did.
		if replaced, err := result.LastInsertId(); err != nil {
			return false, sqldb.Uncertain(ctx, err)
		} else if replaced == 0 {
			return false, fmt.Errorf("%w: the fence row", sqlstore.ErrRowMissing)
		}
	}
	return false, nil
}

// outcome returns what the error of a statement that commits by itself means.
func (e *engine) outcome(ctx context.Context, err error) (again bool, _ error) {
	if sqldb.Harmless(e, err) {
		f := sqldb.Classify(e, err)
		return f == sqldb.FailureNotSent || f == sqldb.FailureLost || f == sqldb.FailureRetry, sqldb.RolledBack(ctx, e, err)
	}
	switch sqldb.Classify(e, err) {
	case sqldb.FailureConflict:
		return false, &sqlstore.Conflict{}
	case sqldb.FailureRetry:
		return true, sqldb.RolledBack(ctx, e, err)
	case sqldb.FailureLost, sqldb.FailureUnknown:
		return false, sqldb.Uncertain(ctx, err)
	}
	return false, sqldb.RolledBack(ctx, e, err)
}

// expectedRows returns the affected rows that conditional upserts of ops report:
// 1 for a row inserted, 2 for one replaced. CASOrPut may do either.
func expectedRows(ops []sqlstore.Op) (low, high int64) {
	for _, op := range ops {
		switch op.Kind {
		case sqlstore.OpCAS:
			low, high = low+2, high+2
		case sqlstore.OpCASOrPut:
			low, high = low+1, high+2
		default:
			low, high = low+1, high+1
		}
	}
	return low, high
}

func rowArgs(ops []sqlstore.Op) []any {
	args := make([]any, 0, 2*len(ops))
	for _, op := range ops {
		args = append(args, sqldb.NotNil(op.Key), sqldb.NotNil(op.Value))
	}
	return args
}

// statementTexts keeps the texts of multi-row statements by their tail and size.
// Safe for concurrent use.
type statementTexts struct{ texts sync.Map }

type textKey struct {
	tail string
	rows int
}

func (t *statementTexts) text(tail string, rows int) string {
	key := textKey{tail, rows}
	if text, ok := t.texts.Load(key); ok {
		return text.(string)
	}
	text := upsertHead + strings.Repeat("(?,?),", rows-1) + "(?,?)" + tail
	if rows <= keptRows { // larger ones hardly ever come twice
		t.texts.Store(key, text)
	}
	return text
}
