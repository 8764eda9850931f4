package sqlstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore/internal/batch"
)

// A commit is one multi-row upsert whenever all its rows are expressible in it
// (see conditional): one round trip, atomic by itself, and twice as fast as a
// transaction. A row that exists is replaced only if it is a marked row and
// holds the mark that the new value says it replaces; else the statement fails,
// and nothing of it is done.
//
// The failing branch must fail in every sql_mode, and only when it is reached.
// ~0 + n is out of the range of BIGINT UNSIGNED for every n above 0, and n is
// not constant, so that no optimizer evaluates it early. NULL would fail in
// strict mode only, and otherwise write an empty value.
//
// Of the chain row the terms are compared as well. After a database lost commits, the
// row may hold a mark again that a leader of an earlier term expects.
const (
	upsertHead      = "INSERT INTO object (internal_key, object_value) VALUES "
	conditionalTail = " ON DUPLICATE KEY UPDATE object_value = IF(" +
		"RIGHT(VALUES(internal_key), 8) = " + zeroMark +
		" AND SUBSTRING(VALUES(object_value), " + prevMarkAt + ") <> " + zeroMark +
		" AND SUBSTRING(object_value, " + markAt + ") = SUBSTRING(VALUES(object_value), " + prevMarkAt + ")" +
		" AND (internal_key <> " + chainKey + " OR SUBSTRING(object_value, " + termAt + ") = SUBSTRING(VALUES(object_value), " + termAt + "))," +
		" VALUES(object_value), ~0 + (LENGTH(object_value) + 1))"
	putTail = " ON DUPLICATE KEY UPDATE object_value = VALUES(object_value)"
)

const (
	// singleRows bounds the rows of a one-statement commit: far below the 65,535
	// placeholders of a statement, and beyond what batching gains by.
	singleRows = 4000
	// chunkRows and chunkBytes bound a statement of a transaction.
	chunkRows  = 1000
	chunkBytes = 4 << 20
	// rowOverhead is what a row takes in a packet beside key and value.
	rowOverhead = 32
	// commitAttempts bounds how often a commit is tried that lost against
	// another transaction or found its connection gone before it was sent.
	commitAttempts = 5
)

// conditional reports whether the upsert above does with op's row exactly what
// op means. An op on a marked row says by its value which mark it replaces, none
// being 0, and so the marks 0 are left to the general way, as is a change of the
// chain row's term.
func conditional(op batch.Op) bool {
	_, prev, marks := coder.Marks(op.Value)
	switch op.Kind {
	case batch.PutIfNotExist:
		return !endsInZeros(op.Key) || marks && prev == 0
	case batch.CAS, batch.CASOrPut:
		return op.Marked() && prev != 0 && keepsTerm(op)
	}
	return false
}

// keepsTerm reports whether op leaves the chain row's term as it is.
func keepsTerm(op batch.Op) bool {
	if !bytes.Equal(op.Key, coder.ChainKey()) {
		return true
	}
	before, err := coder.DecodeChain(op.Old)
	if err != nil {
		return false
	}
	after, err := coder.DecodeChain(op.Value)
	return err == nil && after.Term == before.Term
}

func endsInZeros(key []byte) bool {
	return len(key) >= 8 && binary.BigEndian.Uint64(key[len(key)-8:]) == 0
}

func (d *mysqlDialect) commit(ctx context.Context, s *DBStore, ops []batch.Op) error {
	// The chain row first: whoever lost its race waits or fails there, before it
	// locks anything else. The others in key order, which no two commits can
	// deadlock over and the tree takes best.
	chain := coder.ChainKey()
	slices.SortFunc(ops, func(a, b batch.Op) int {
		aChain, bChain := bytes.Equal(a.Key, chain), bytes.Equal(b.Key, chain)
		switch {
		case aChain && !bChain:
			return -1
		case bChain && !aChain:
			return 1
		}
		return bytes.Compare(a.Key, b.Key)
	})
	statement, run := "commit_tx", d.commitTx
	if d.fitsOne(s, ops) {
		statement, run = "commit_single", d.commitSingle
	}
	return s.observe(ctx, statement, func() error {
		for attempt := 1; ; attempt++ {
			again, err := run(ctx, s, ops)
			if !again || attempt == commitAttempts || ctx.Err() != nil {
				return err
			}
			s.metrics.retries.Inc()
			s.metrics.failed(d, err)
		}
	})
}

func (d *mysqlDialect) fitsOne(s *DBStore, ops []batch.Op) bool {
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
	return size <= s.info.MaxPacket-packetMargin
}

// commitSingle sends the one statement. again says that nothing was written and
// that it may succeed if repeated.
func (d *mysqlDialect) commitSingle(ctx context.Context, s *DBStore, ops []batch.Op) (again bool, err error) {
	conn, err := s.db.write.Conn(ctx)
	if err != nil {
		return false, definite(ctx, d, err)
	}
	defer conn.Close() // only returns it to the pool
	result, err := conn.ExecContext(ctx, d.upserts.text(conditionalTail, len(ops)), rowArgs(ops)...)
	if err != nil {
		return d.judge(ctx, err)
	}
	affected, err := result.RowsAffected()
	if err != nil {
		return false, uncertain(ctx, err)
	}
	low, high := expectedRows(ops)
	switch {
	case affected < low:
		return false, fmt.Errorf("%w: the commit changed %d rows by the server's count, at least %d were due", ErrRowMissing, affected, low)
	case affected > high:
		return false, uncertain(ctx, fmt.Errorf("the commit changed %d rows by the server's count, at most %d were due", affected, high))
	}
	return false, nil
}

// judge says what the error of a statement that commits by itself means.
func (d *mysqlDialect) judge(ctx context.Context, err error) (again bool, _ error) {
	if harmless(d, err) {
		f := d.classify(err)
		return f == failureNotSent || f == failureLost || f == failureRetry, definite(ctx, d, err)
	}
	switch d.classify(err) {
	case failureConflict:
		return false, &Conflict{}
	case failureRetry:
		return true, definite(ctx, d, err)
	case failureLost, failureUnknown:
		return false, uncertain(ctx, err)
	}
	return false, definite(ctx, d, err)
}

// expectedRows returns the affected rows that conditional upserts of ops report:
// 1 for a row inserted, 2 for one replaced. CASOrPut may do either.
func expectedRows(ops []batch.Op) (low, high int64) {
	for _, op := range ops {
		switch op.Kind {
		case batch.CAS:
			low, high = low+2, high+2
		case batch.CASOrPut:
			low, high = low+1, high+2
		default:
			low, high = low+1, high+1
		}
	}
	return low, high
}

func rowArgs(ops []batch.Op) []any {
	args := make([]any, 0, 2*len(ops))
	for _, op := range ops {
		args = append(args, notNil(op.Key), notNil(op.Value))
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
	if rows <= chunkRows { // larger ones hardly ever come twice
		t.texts.Store(key, text)
	}
	return text
}
