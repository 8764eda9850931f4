package tidbsim

import (
	"context"
	"time"

	"github.com/go-sql-driver/mysql"
)

// txn is a transaction. The cluster's mutex guards it.
type txn struct {
	cluster     *Cluster
	session     *session
	start       uint64
	began       time.Time
	schema      int64
	pessimistic bool
	// committed: each statement reads what is newest (READ COMMITTED).
	committed bool
	// buffer holds the writes, nil for a deletion; stage those of the statement in progress.
	buffer, stage map[rowKey]row
	inserted      map[rowKey]struct{} // which must not exist when the transaction commits
	wants         []want              // of the statement in progress
	locked        map[rowKey]struct{}
	order         []rowKey // of locked
	waitsFor      *txn
}

func (c *Cluster) begin(s *session, pessimistic, committed bool) *txn {
	t := &txn{
		cluster: c, session: s, start: c.tso(), began: time.Now(), schema: c.schema, pessimistic: pessimistic,
		committed: committed && pessimistic,
		buffer:    map[rowKey]row{}, stage: map[rowKey]row{}, inserted: map[rowKey]struct{}{}, locked: map[rowKey]struct{}{},
	}
	c.active[t] = struct{}{}
	return t
}

// broken returns the client's error if its connection broke.
func (t *txn) broken() error {
	if t.session != nil && t.session.gone {
		return mysql.ErrInvalidConn
	}
	return nil
}

// end forgets t, whose writes were applied or are given up.
func (c *Cluster) end(t *txn) {
	delete(c.active, t)
	for key := range t.buffer {
		key.table.forget(key.key)
	}
	for key := range t.stage {
		key.table.forget(key.key)
	}
	c.release(t)
}

// blocked is the error of a read that met the lock of a transaction that is committing.
type blocked struct{}

func (blocked) Error() string { return "tidbsim: blocked" }

// view is what a statement reads: a snapshot, and the writes of its transaction.
type view struct {
	txn *txn
	ts  uint64
}

func (v view) of(t *table, r *record) (row, error) {
	key := rowKey{t, r.key}
	if w, ok := v.txn.stage[key]; ok {
		return w, nil
	}
	if w, ok := v.txn.buffer[key]; ok {
		return w, nil
	}
	if l := v.txn.cluster.holder(key, v.txn); l != nil && l.prewritten && l.owner.start <= v.ts {
		return nil, blocked{}
	}
	return r.at(v.ts), nil
}

func (v view) get(t *table, key string) (row, error) {
	r, ok := t.rows.Get(&record{key: key})
	if !ok {
		return nil, nil
	}
	return v.of(t, r)
}

// scan calls f with the rows of [lo, hi) in order until it returns false. A nil hi has no
// bound.
func (v view) scan(t *table, lo string, hi *string, desc bool, f func(key string, r row) (bool, error)) (err error) {
	visit := func(r *record) bool {
		if desc {
			if hi != nil && r.key >= *hi {
				return true
			}
			if r.key < lo {
				return false
			}
		} else if hi != nil && r.key >= *hi {
			return false
		}
		var found row
		found, err = v.of(t, r)
		if err != nil || found == nil {
			return err == nil
		}
		var more bool
		more, err = f(r.key, found)
		return more && err == nil
	}
	switch {
	case !desc:
		t.rows.AscendGreaterOrEqual(&record{key: lo}, visit)
	case hi != nil:
		t.rows.DescendLessOrEqual(&record{key: *hi}, visit)
	default:
		t.rows.Descend(visit)
	}
	return err
}

// write puts a row, nil for a deletion, into the statement's stage.
func (t *txn) write(tbl *table, key string, r row) error {
	if r != nil && encodedSize(key, r) > maxEntry {
		return number(erEntryTooLarge, "entry too large, the max entry size is %d, the size of data is %d", maxEntry,
			encodedSize(key, r))
	}
	tbl.find(key)
	t.stage[rowKey{tbl, key}] = r
	return nil
}

// keep makes the statement's writes the transaction's.
func (t *txn) keep() {
	for key, r := range t.stage {
		t.buffer[key] = r
	}
	if !t.pessimistic {
		for _, w := range t.wants {
			if w.absent {
				t.inserted[w.rowKey] = struct{}{}
			}
			t.locked[w.rowKey] = struct{}{}
		}
	}
	t.stage, t.wants = map[rowKey]row{}, nil
}

// undo drops the statement's writes.
func (t *txn) undo() {
	for key := range t.stage {
		if _, ok := t.buffer[key]; !ok {
			key.table.forget(key.key)
		}
	}
	t.stage, t.wants = map[rowKey]row{}, nil
}

// check is the first phase of a commit, without waiting. wait reports that the lock of
// another transaction is in the way.
func (c *Cluster) check(t *txn) (wait bool, err error) {
	size := 0
	for key, r := range t.buffer {
		size += encodedSize(key.key, r)
		if key.table.changed > t.schema {
			return false, number(erSchemaChanged, "Information schema is changed during the execution of the statement. [try again later]")
		}
	}
	if size > maxTransaction {
		return false, number(erTxnTooLarge, "transaction is too large, size: %d", size)
	}
	for key := range t.buffer {
		if c.holder(key, t) != nil {
			if t.pessimistic {
				return false, lockNotFound(t)
			}
			return true, nil
		}
		if err := c.checkRow(t, key); err != nil {
			return false, err
		}
	}
	if !t.pessimistic {
		for key := range t.locked { // by SELECT … FOR UPDATE
			if err := c.checkRow(t, key); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

func (c *Cluster) checkRow(t *txn, key rowKey) error {
	r, ok := key.table.rows.Get(&record{key: key.key})
	if !ok {
		return nil
	}
	l := c.locks[key]
	switch _, insert := t.inserted[key]; {
	case t.pessimistic && (l == nil || l.owner != t) && r.newest() >= t.start:
		// The lock was lost. TiKV continues without it if the row has not changed since the
		// transaction began.
		return lockNotFound(t)
	case !t.pessimistic && r.newest() > t.start:
		return number(erWriteConflict, "Write conflict, txnStartTS=%d, conflictCommitTS=%d, reason=Optimistic [try again later]", t.start, r.newest())
	case insert && r.at(c.lastTS) != nil:
		return duplicate(key.table, key.key)
	}
	return nil
}

func lockNotFound(t *txn) error {
	return number(erUnknown, "tikv aborts txn: Error(Txn(Error(Mvcc(Error(PessimisticLockNotFound { start_ts: TimeStamp(%d), reason: LockMissingAmendFail })))))", t.start)
}

// apply is the second phase: it cannot fail.
func (c *Cluster) apply(t *txn) {
	commit := c.tso()
	for key, w := range t.buffer {
		r := key.table.find(key.key)
		r.versions = append(r.versions, version{commit: commit, row: w})
		r.collect(c.safePoint)
	}
	c.end(t)
}

// commit commits t, which has ended when it returns.
func (c *Cluster) commit(ctx context.Context, t *txn) error {
	if len(t.buffer) == 0 {
		c.end(t)
		return nil
	}
	deadline := time.Now().Add(prewriteBackoff)
	for {
		c.collect()
		wait, err := c.check(t)
		if err != nil {
			c.end(t)
			return err
		}
		if !wait {
			return c.decide(t)
		}
		left := time.Until(deadline)
		if left <= 0 {
			c.end(t)
			return number(erResolveTimeout, "Resolve lock timeout")
		}
		if err := c.wait(ctx, min(left, pollInterval)); err != nil {
			// The client is gone. The server notices that, or continues.
			if c.rnd.IntN(2) == 0 {
				c.haunt(t, false)
			} else {
				c.end(t)
			}
			return err
		}
	}
}

// decide ends a commit that nothing stands in the way of.
func (c *Cluster) decide(t *txn) error {
	if f, ok := c.strikeOne(commitFaults); ok {
		return c.failCommit(f, t)
	}
	c.apply(t)
	return nil
}

// retryable reports whether TiDB executes a statement that commits by itself again.
func retryable(err error) bool {
	switch numberOf(err) {
	case erWriteConflict, erTxnRetryable, erSchemaChanged:
		return true
	}
	return false
}
