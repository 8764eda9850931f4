package tidbsim

import (
	"context"
	"slices"
	"strings"
	"time"
)

// rowKey names a row of a table.
type rowKey struct {
	table *table
	key   string
}

// lock is a lock on a row.
type lock struct {
	owner *txn
	// prewritten: the owner is committing, so that readers wait as well.
	prewritten bool
	// expires is when others may remove the lock; zero: its owner keeps it alive.
	expires time.Time
}

// holder returns the lock on key if it belongs to another transaction than t.
func (c *Cluster) holder(key rowKey, t *txn) *lock {
	l := c.locks[key]
	if l == nil || l.owner == t {
		return nil
	}
	if !l.expires.IsZero() && !time.Now().Before(l.expires) {
		delete(c.locks, key)
		return nil
	}
	return l
}

// release drops the locks of t.
func (c *Cluster) release(t *txn) {
	for _, key := range t.order {
		if l := c.locks[key]; l != nil && l.owner == t {
			delete(c.locks, key)
		}
	}
	t.order, t.locked = nil, map[rowKey]struct{}{}
	c.wake()
}

// deadlocks reports whether t, if it waits for owner, waits for itself.
func deadlocks(t, owner *txn) bool {
	for o := owner; o != nil; o = o.waitsFor {
		if o == t {
			return true
		}
	}
	return false
}

// want is a row that a statement locks.
type want struct {
	rowKey
	// absent: the statement inserts the row, which must not exist.
	absent bool
	// ifExists: a missing row is not locked.
	ifExists bool
}

// lockRows locks the rows that a statement of t, which has read at ts, wants. conflict
// reports that one has changed since, so that the statement must be executed again. If it
// fails, it releases what it locked.
//
// The batch of the first row's region comes first, if the transaction has no lock yet; the
// other regions are locked at once, in no certain order (doActionOnGroupMutations in
// client-go's 2pc.go).
func (c *Cluster) lockRows(ctx context.Context, t *txn, wants []want, ts uint64,
	patience time.Duration) (conflict bool, err error) {
	if len(wants) == 0 {
		return false, nil
	}
	first := wants[0].table.region(wants[0].key)
	regions := map[int]int{first: -1}
	slices.SortStableFunc(wants, func(a, b want) int { return strings.Compare(a.key, b.key) })
	for _, w := range wants {
		if r := w.table.region(w.key); r != first || len(t.order) > 0 {
			if _, ok := regions[r]; !ok {
				regions[r] = c.rnd.IntN(1 << 20)
			}
		}
	}
	slices.SortStableFunc(wants, func(a, b want) int {
		return regions[a.table.region(a.key)] - regions[b.table.region(b.key)]
	})
	taken := len(t.order)
	undo := func() {
		for _, key := range t.order[taken:] {
			if l := c.locks[key]; l != nil && l.owner == t {
				delete(c.locks, key)
			}
			delete(t.locked, key)
		}
		t.order = t.order[:taken]
		c.wake()
	}
	deadline := time.Now().Add(patience)
	for _, w := range wants {
		for {
			l := c.holder(w.rowKey, t)
			if l == nil {
				break
			}
			if deadlocks(t, l.owner) {
				undo()
				return false, number(erDeadlock, "Deadlock found when trying to get lock; try restarting transaction")
			}
			left := time.Until(deadline)
			if left <= 0 {
				undo()
				return false, number(erLockWaitTimeout, "Lock wait timeout exceeded; try restarting transaction")
			}
			if !l.expires.IsZero() {
				left = min(left, pollInterval)
			}
			t.waitsFor = l.owner
			err := c.wait(ctx, left)
			t.waitsFor = nil
			if err == nil {
				err = t.broken()
			}
			if err != nil {
				undo()
				return false, err
			}
		}
		r := w.table.find(w.key)
		_, mine := t.locked[w.rowKey]
		switch exists := r.at(c.lastTS) != nil; {
		case r.newest() > ts && !mine:
			w.table.forget(w.key)
			undo()
			return true, nil
		case w.absent && exists:
			undo()
			return false, duplicate(w.table, w.key)
		case w.ifExists && !exists:
			w.table.forget(w.key)
			continue
		}
		if !mine {
			t.locked[w.rowKey] = struct{}{}
			t.order = append(t.order, w.rowKey)
		}
		if c.locks[w.rowKey] == nil && !mine {
			c.locks[w.rowKey] = &lock{owner: t}
		}
	}
	return false, nil
}

func duplicate(t *table, key string) error {
	return number(erDupEntry, "Duplicate entry '%x' for key '%s.PRIMARY'", key, t.name)
}
