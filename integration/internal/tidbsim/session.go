package tidbsim

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"
)

// session is a connection's state in the TiDB server. The cluster's mutex guards it.
type session struct {
	cluster *Cluster
	id      uint64
	vars    map[string]string
	// oneShot is the isolation level of the next transaction, "" for the session's.
	oneShot string
	txn     *txn
	// busy: a statement is being executed. gone: the connection broke, or the client closed
	// it. crashed: so did the server.
	busy, gone, crashed bool
}

// close ends the session. If a statement is being executed, the session ends after it.
func (s *session) close() {
	c := s.cluster
	s.gone = true
	for name, owner := range c.advisory {
		if owner == s {
			delete(c.advisory, name)
		}
	}
	if t := s.txn; t != nil && !s.busy {
		s.txn = nil
		if !s.crashed {
			c.end(t)
			return
		}
		// Nobody rolls the transaction back: its locks stay until they expire.
		delete(c.active, t)
		for _, key := range t.order {
			if l := c.locks[key]; l != nil && l.owner == t {
				l.expires = time.Now().Add(lockTTL)
			}
		}
	}
	c.wake()
}

func (s *session) abandon() { s.crashed = true }

// statement is what compile makes of a text: a control, a query or a change.
type (
	// control is a statement that decides by itself how it runs.
	control func(ctx context.Context, s *session, args []any) (*result, error)
	// change reads and writes rows.
	change interface {
		execute(x *execution) (*result, error)
	}
)

// result is the answer to a statement.
type result struct {
	columns  []string
	rows     [][]any
	affected int64
}

// execution is one attempt at a statement.
type execution struct {
	view
	session *session
	args    []any
}

// execute executes a compiled statement. The mutex is held, except while it waits.
func (s *session) execute(ctx context.Context, compiled any, args []any) (*result, error) {
	s.busy = true
	defer func() {
		s.busy = false
		if s.gone {
			s.close()
		}
	}()
	s.cluster.settle()
	switch p := compiled.(type) {
	case control:
		return p(ctx, s, args)
	case commitControl:
		return p.execute(ctx, s, args)
	case *query:
		if s.txn == nil || !p.locks {
			return s.read(ctx, p, args)
		}
		return s.lock(ctx, s.txn, p, args)
	case change:
		if s.txn == nil {
			return s.autocommit(ctx, p, args)
		}
		return s.lock(ctx, s.txn, p, args)
	}
	return nil, unsupported("statement", compiled)
}

// read executes a query that locks nothing. By itself, it reads what is committed, even if
// it says FOR UPDATE.
func (s *session) read(ctx context.Context, q *query, args []any) (*result, error) {
	c, t := s.cluster, s.txn
	snapshot := t != nil && !t.committed
	if q.tables {
		faults := readFaults
		if snapshot {
			faults = append(snapFaults[:1:1], readFaults...)
		}
		if f, ok := c.strikeOne(faults); ok {
			return nil, faultErrors[f]
		}
	}
	if t == nil {
		t = c.begin(s, false, false)
		defer c.end(t)
	}
	ts := t.start
	if t.committed {
		ts = c.tso()
	}
	c.collect()
	if q.tables && ts < c.safePoint {
		return nil, faultErrors[GCTooEarly]
	}
	for {
		res, err := q.execute(&execution{view: view{t, ts}, session: s, args: args})
		if !errors.Is(err, blocked{}) {
			return res, err
		}
		if err := s.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// wait waits for a lock that blocks a reader.
func (s *session) wait(ctx context.Context) error {
	if err := s.cluster.wait(ctx, pollInterval); err != nil {
		return err
	}
	if s.gone {
		return mysql.ErrInvalidConn
	}
	return nil
}

// autocommit executes a change that is a transaction by itself: optimistically, and after
// a conflict pessimistically, on the newest rows (session.doCommitWithRetry and retry).
func (s *session) autocommit(ctx context.Context, p change, args []any) (*result, error) {
	c := s.cluster
	t := c.begin(s, false, false)
	if f, ok := c.strikeOne(readFaults); ok {
		c.end(t)
		return nil, faultErrors[f]
	}
	res, err := s.lock(ctx, t, p, args)
	if err != nil {
		c.end(t)
		return nil, err
	}
	err = c.commit(ctx, t)
	limit := s.integer("tidb_retry_limit")
	for n := 1; retryable(err) && n <= limit; n++ {
		// kv.BackOff
		if err := c.wait(ctx, time.Duration(min(1<<n, 100))*time.Millisecond); err != nil {
			return nil, err
		}
		t = c.begin(s, true, s.level() == levelCommitted)
		if res, err = s.lock(ctx, t, p, args); err != nil {
			c.end(t)
			continue
		}
		err = c.commit(ctx, t)
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

// lock executes a statement of t that writes or locks. A pessimistic transaction locks the
// rows afterwards; if one has changed in the meantime, the statement is executed again
// (handlePessimisticDML in pkg/executor/adapter.go).
func (s *session) lock(ctx context.Context, t *txn, p change, args []any) (*result, error) {
	c := s.cluster
	if t.pessimistic {
		if c.strike(LocksLost) {
			for _, key := range t.order {
				if l := c.locks[key]; l != nil && l.owner == t {
					delete(c.locks, key)
				}
			}
			c.wake()
		}
		if f, ok := c.strikeOne(lockFaults); ok {
			return nil, s.failed(t, faultErrors[f])
		}
	}
	patience := time.Duration(s.integer("innodb_lock_wait_timeout")) * time.Second
	for n := 0; ; {
		ts := t.start
		if t.pessimistic {
			ts = c.tso()
		}
		t.undo()
		res, err := p.execute(&execution{view: view{t, ts}, session: s, args: args})
		if errors.Is(err, blocked{}) {
			if err = s.wait(ctx); err == nil {
				continue
			}
		}
		conflict := false
		if err == nil && t.pessimistic {
			conflict, err = c.lockRows(ctx, t, t.wants, ts, patience)
		}
		if err != nil {
			t.undo()
			return nil, s.failed(t, err)
		}
		if !conflict {
			t.keep()
			return res, nil
		}
		if n++; n == lockRetries {
			t.undo()
			return nil, number(erUnknown, "pessimistic lock retry limit reached")
		}
	}
}

// failed rolls back the session's transaction t if err is a deadlock
// (autoCommitAfterStmt in pkg/session/tidb.go); other errors leave it open. It returns err.
func (s *session) failed(t *txn, err error) error {
	if t == s.txn && numberOf(err) == erDeadlock {
		s.txn = nil
		s.cluster.end(t)
	}
	return err
}

// late makes a statement whose client is gone take effect later, if it is one that commits.
func (s *session) late(compiled any, args []any) {
	c := s.cluster
	if isCommit(compiled) {
		if t := s.txn; t != nil && len(t.buffer) > 0 {
			s.txn = nil
			c.haunt(t, false)
		}
		return
	}
	p, ok := compiled.(change)
	if _, reads := compiled.(*query); !ok || reads || s.txn != nil {
		return
	}
	due := time.Now().Add(time.Duration(1 + c.rnd.Int64N(int64(c.lateCommit))))
	c.ghosts = append(c.ghosts, &ghost{due: due, last: due.Add(prewriteBackoff), giveUp: func() {},
		run: func() bool {
			t := c.begin(nil, false, false)
			if _, err := p.execute(&execution{view: view{t, t.start}, session: s, args: args}); err != nil {
				c.end(t)
				return !errors.Is(err, blocked{})
			}
			t.keep()
			wait, err := c.check(t)
			if err != nil || wait {
				c.end(t)
				return !wait
			}
			c.apply(t)
			return true
		}})
}

const (
	levelCommitted    = "READ-COMMITTED"
	levelRepeatable   = "REPEATABLE-READ"
	levelSerializable = "SERIALIZABLE"
)

// level returns the isolation level of the next transaction.
func (s *session) level() string {
	if s.oneShot != "" {
		return s.oneShot
	}
	return s.vars["transaction_isolation"]
}

func (s *session) integer(name string) int {
	n, err := strconv.Atoi(s.vars[name])
	if err != nil {
		return 0
	}
	return n
}

// start begins a transaction; one in progress is committed.
func (s *session) start(ctx context.Context, mode string) error {
	if err := s.commit(ctx); err != nil {
		return err
	}
	if mode == "" {
		mode = s.vars["tidb_txn_mode"]
	}
	s.txn = s.cluster.begin(s, mode == "pessimistic", s.level() == levelCommitted)
	s.oneShot = ""
	return nil
}

func (s *session) commit(ctx context.Context) error {
	t := s.txn
	if t == nil {
		return nil
	}
	s.txn = nil
	return s.cluster.commit(ctx, t)
}

func (s *session) rollback() {
	if t := s.txn; t != nil {
		s.txn = nil
		s.cluster.end(t)
	}
}
