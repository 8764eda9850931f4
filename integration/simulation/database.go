package simulation

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// databaseHost is the database's machine.
const databaseHost = "db"

// database is the table that all nodes share, with the faults of its server.
type database struct {
	w     *world
	store sqlstore.Store

	mu       sync.Mutex
	rnd      *rand.Rand
	trouble  map[string]trouble // by host
	down     int                // how many faults make it refuse statements
	deferred []func() bool      // what waits for packets to pass; returns whether they do. Called with mu held
}

// trouble is how likely, of a thousand, a statement of one host meets a fault.
type trouble struct {
	before int // an error before the database has the statement
	after  int // a broken connection after the database executed it
	lost   int // a broken connection, and it is not executed
	late   int // a broken connection, and it is executed up to lateBy later
	hang   int // no answer; whether it is executed is open
	slow   time.Duration

	readOnly bool          // an error before the database has a commit
	answer   time.Duration // the longest that some answers to commits take
	read     time.Duration // the longest that some other answers take
	token    bool          // no answer to reads of the fence row alone
	list     time.Duration // the longest that answers to lists take
	removal  time.Duration // how late the removals of compacted rows reach the database
}

// lateBy is how long after its caller gave up a statement may be executed.
const lateBy = 3 * time.Second

// statementTimeout is the timeout in the URL of the database, which bounds a statement without
// an answer.
const statementTimeout = 5 * time.Second

// Errors of the network to the database.
var (
	errRefused = fmt.Errorf("%w: connection refused", sqlstore.ErrUnavailable)
	errBroken  = fmt.Errorf("%w: connection is broken", sqlstore.ErrUnavailable)
	// errUncertain is errBroken for commits.
	errUncertain = fmt.Errorf("%w: connection is broken", sqlstore.ErrUncertain)
)

// session is a process's connection to the database. It implements sqlstore.Store.
type session struct {
	d *database
	p *process

	mu  sync.Mutex
	rnd *rand.Rand
}

var _ sqlstore.Store = (*session)(nil)

func (d *database) connect(p *process) *session {
	return &session{d: d, p: p, rnd: d.w.rand("database of " + p.name)}
}

// statementKind is what a statement is for.
type statementKind int

const (
	query   statementKind = iota
	listing               // a query that reads keys for a client
	token                 // a query of the fence row alone
	change                // it commits
	removal               // a commit that removes compacted rows, and does nothing else
)

func (k statementKind) commits() bool { return k >= change }

// kindOf returns the kind of a commit.
func kindOf(ops []sqlstore.Op) statementKind {
	for _, op := range ops {
		if op.Kind != sqlstore.OpDel && op.Kind != sqlstore.OpDelCurrent && !bytes.Equal(op.Key, coder.ClaimKey()) {
			return change
		}
	}
	return removal
}

// fate is what happens to one statement.
type fate struct {
	there, back time.Duration
	kind        fateKind
	late        time.Duration
	// survives: it is executed although its caller has given up, or died.
	survives bool
}

type fateKind int

const (
	answered fateKind = iota
	failedBefore
	brokenAfter
	brokenLost
	brokenLate
	hanging
)

func (s *session) draw(kind statementKind) fate {
	s.d.mu.Lock()
	t, down := s.d.trouble[s.p.host], s.d.down
	s.d.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rnd
	f := fate{
		there: 100*time.Microsecond + time.Duration(r.Int64N(int64(time.Millisecond))),
		back:  100*time.Microsecond + time.Duration(r.Int64N(int64(time.Millisecond))),
		late:  time.Duration(r.Int64N(int64(lateBy))), survives: r.IntN(2) == 0,
	}
	switch r.IntN(100) {
	case 0: // the database is busy
		f.there += time.Duration(r.Int64N(int64(100 * time.Millisecond)))
	case 1: // the answer is an old one when it arrives
		f.back += time.Duration(r.Int64N(int64(100 * time.Millisecond)))
	}
	if far := s.d.w.plan.Settings.Latency; far > 0 {
		f.there += time.Duration(r.Int64N(int64(far)))
		f.back += time.Duration(r.Int64N(int64(far)))
	}
	if t.slow > 0 {
		f.there += time.Duration(r.Int64N(int64(t.slow)))
		f.back += time.Duration(r.Int64N(int64(t.slow)))
	}
	n := r.IntN(1000)
	for kind, share := range []int{failedBefore: t.before, brokenAfter: t.after, brokenLost: t.lost, brokenLate: t.late,
		hanging: t.hang} {
		if n -= share; n < 0 {
			f.kind = fateKind(kind)
			break
		}
	}
	late := t.read
	if kind.commits() {
		late = t.answer
	}
	switch {
	case kind == removal:
		f.there += t.removal
	case kind == listing && t.list > 0:
		f.back += time.Duration(r.Int64N(int64(t.list)))
	}
	if late > 0 && r.IntN(3) == 0 {
		f.back += time.Duration(r.Int64N(int64(late)))
	}
	if kind == token && t.token {
		f.kind = hanging
	}
	if down > 0 || t.readOnly && kind.commits() {
		f.kind = failedBefore
	}
	return f
}

// statement executes f in the database. Its error is what f returns, errRefused if the
// database certainly does not execute it, or errBroken or errUncertain if that is open.
func statement[T any](ctx context.Context, s *session, kind statementKind, what string,
	f func() (T, error)) (result T, err error) {
	lost := errBroken
	if kind.commits() {
		lost = errUncertain
	}
	if err := ctx.Err(); err != nil {
		return result, err
	}
	if s.p.dead() {
		return result, errRefused
	}
	fate := s.draw(kind)
	type answer struct {
		result T
		err    error
	}
	answers := make(chan answer, 1)
	gaveUp := make(chan struct{})
	defer close(gaveUp)
	execute := func() bool {
		select {
		case <-gaveUp:
			if !fate.survives {
				return true
			}
			s.d.w.note(databaseHost, what+" of "+s.p.name+" is executed late")
		case <-s.p.gone:
			if !fate.survives {
				return true
			}
		default:
		}
		if fate.kind == brokenLost || fate.kind == hanging && !fate.survives {
			return true
		}
		r, err := f()
		outcome := "done"
		if err != nil {
			outcome = err.Error()
		}
		s.d.w.note(databaseHost, what+" of "+s.p.name+": "+outcome)
		if fate.kind == answered || fate.kind == brokenAfter {
			s.d.after(fate.back, s.p.host, func() bool {
				answers <- answer{r, err}
				return true
			})
		}
		return true
	}
	pause := fate.there
	if fate.kind == brokenLate {
		pause += fate.late
	}
	if fate.kind != failedBefore {
		s.d.after(pause, s.p.host, execute)
	}
	most := statementTimeout
	switch fate.kind {
	case failedBefore, brokenLost, brokenLate:
		most = fate.there + fate.back
	}
	broken := time.NewTimer(most)
	defer broken.Stop()
	select {
	case a := <-answers:
		if fate.kind == brokenAfter {
			s.d.w.trace(s.p.host, "%s: answer lost", what)
			return result, lost
		}
		return a.result, a.err
	case <-broken.C:
		s.d.w.trace(s.p.host, "%s: failed, kind %d", what, fate.kind)
		if fate.kind == failedBefore {
			return result, errRefused
		}
		return result, lost
	case <-ctx.Done():
		s.d.w.trace(s.p.host, "%s: gave up", what)
		if lost == errBroken {
			return result, ctx.Err()
		}
		return result, fmt.Errorf("%w: %w", lost, ctx.Err())
	case <-s.p.gone:
		return result, lost
	}
}

// after calls f after a pause, once packets pass between the host and the database.
func (d *database) after(pause time.Duration, host string, f func() bool) {
	time.AfterFunc(pause, func() {
		if d.blocked(host) {
			d.mu.Lock()
			d.deferred = append(d.deferred, func() bool {
				if d.blocked(host) {
					return false
				}
				d.after(time.Duration(d.rnd.Int64N(int64(retransmission))), host, f)
				return true
			})
			d.mu.Unlock()
			return
		}
		f()
	})
}

func (d *database) blocked(host string) bool {
	n := d.w.network
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.blocked(direction{host, databaseHost}) || n.blocked(direction{databaseHost, host})
}

// flush lets through what waited.
func (d *database) flush() {
	d.mu.Lock()
	defer d.mu.Unlock()
	var rest []func() bool
	for _, f := range d.deferred {
		if !f() {
			rest = append(rest, f)
		}
	}
	d.deferred = rest
}

func (d *database) setTrouble(host string, t trouble) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trouble[host] = t
}

// troubled makes the statements of a host troubled for a time.
func (d *database) troubled(host string, t trouble, length time.Duration) {
	d.setTrouble(host, t)
	time.Sleep(length)
	d.setTrouble(host, trouble{})
}

func (d *database) setDown(by int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down += by
}

// everything is a range that contains all rows.
var everything = sqlstore.Range{Start: []byte{}, End: bytes.Repeat([]byte{0xff}, 64)}

// fork returns all rows.
func (d *database) fork() (rows []sqlstore.Row, err error) {
	for row, err := range d.store.Iter(context.Background(), everything) {
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// lose replaces all rows by those of a fork.
func (d *database) lose(rows []sqlstore.Row) error {
	old := make(map[string]bool)
	b := d.store.BeginBatchWrite()
	for _, row := range rows {
		old[string(row.Key)] = true
		b.Put(row.Key, row.Value)
	}
	for row, err := range d.store.Iter(context.Background(), everything) {
		if err != nil {
			return err
		}
		if !old[string(row.Key)] {
			b.Del(row.Key)
		}
	}
	return b.Commit(context.Background())
}

// GetPartitions implements sqlstore.KvStorage.
func (s *session) GetPartitions(ctx context.Context, start, end []byte) ([]sqlstore.Partition, error) {
	start, end = bytes.Clone(start), bytes.Clone(end)
	return statement(ctx, s, query, "partitions", func() ([]sqlstore.Partition, error) {
		return s.d.store.GetPartitions(context.Background(), start, end)
	})
}

// Get implements sqlstore.KvStorage.
func (s *session) Get(ctx context.Context, key []byte) ([]byte, error) {
	key = bytes.Clone(key)
	kind := query
	if bytes.Equal(key, coder.FenceKey()) {
		kind = token
	}
	return statement(ctx, s, kind, "get", func() ([]byte, error) { return s.d.store.Get(context.Background(), key) })
}

// MultiGet implements sqlstore.KvStorage.
func (s *session) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	keys = cloneAll(keys)
	return statement(ctx, s, query, "multiget",
		func() ([][]byte, error) { return s.d.store.MultiGet(context.Background(), keys) })
}

// Iter implements sqlstore.KvStorage. A page has few rows, as the contract allows.
func (s *session) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	type page struct {
		rows []sqlstore.Row
		more bool
	}
	return sqlstore.Pages(r, func(r sqlstore.Range) ([]sqlstore.Row, bool, error) {
		s.mu.Lock()
		most := 1 + s.rnd.IntN(64)
		s.mu.Unlock()
		r.Start, r.End = bytes.Clone(r.Start), bytes.Clone(r.End)
		p, err := statement(ctx, s, query, "page", func() (p page, err error) {
			limit := r.Limit
			if limit == 0 || limit > most {
				limit, r.Limit = most, most+1
			}
			for row, err := range s.d.store.Iter(context.Background(), r) {
				if err != nil {
					return page{}, err
				}
				if len(p.rows) == limit {
					p.more = true
					break
				}
				p.rows = append(p.rows, row)
			}
			return p, nil
		})
		return p.rows, p.more, err
	})
}

// BeginBatchWrite implements sqlstore.KvStorage.
func (s *session) BeginBatchWrite() sqlstore.BatchWrite {
	return sqlstore.NewBatch(func(ctx context.Context, ops []sqlstore.Op) error {
		own := make([]sqlstore.Op, len(ops))
		for i, op := range ops {
			own[i] = sqlstore.Op{Kind: op.Kind, Key: bytes.Clone(op.Key), Value: bytes.Clone(op.Value), Old: bytes.Clone(op.Old)}
		}
		_, err := statement(ctx, s, kindOf(own), "commit of "+strconv.Itoa(len(own)), func() (struct{}, error) {
			return struct{}{}, commit(s.d.store, own)
		})
		return err
	})
}

// commit commits changes in a batch of the store.
func commit(store sqlstore.Store, ops []sqlstore.Op) error {
	b := store.BeginBatchWrite()
	for _, op := range ops {
		switch op.Kind {
		case sqlstore.OpPutIfNotExist:
			b.PutIfNotExist(op.Key, op.Value)
		case sqlstore.OpCAS:
			b.CAS(op.Key, op.Value, op.Old)
		case sqlstore.OpCASOrPut:
			b.CASOrPut(op.Key, op.Value, op.Old)
		case sqlstore.OpPut:
			b.Put(op.Key, op.Value)
		case sqlstore.OpDel:
			b.Del(op.Key)
		case sqlstore.OpDelCurrent:
			b.DelCurrent(op.Key, op.Old)
		}
	}
	return b.Commit(context.Background())
}

// Timestamp implements sqlstore.KvStorage.
func (s *session) Timestamp(ctx context.Context) (time.Time, error) {
	return statement(ctx, s, query, "timestamp",
		func() (time.Time, error) { return s.d.store.Timestamp(context.Background()) })
}

// Close implements sqlstore.KvStorage.
func (s *session) Close() error { return nil }

// page is the answer of a List or a Lookup.
type page struct {
	rows []sqlstore.ListRow
	more bool
}

// List implements sqlstore.Store.
func (s *session) List(ctx context.Context, q sqlstore.ListQuery) ([]sqlstore.ListRow, bool, error) {
	q.Start, q.End = bytes.Clone(q.Start), bytes.Clone(q.End)
	p, err := statement(ctx, s, listing, "list", func() (p page, err error) {
		p.rows, p.more, err = s.d.store.List(context.Background(), q)
		return p, err
	})
	return p.rows, p.more, err
}

// Lookup implements sqlstore.Store.
func (s *session) Lookup(ctx context.Context, keys [][]byte, maxBytes int) ([]sqlstore.ListRow, bool, error) {
	keys = cloneAll(keys)
	p, err := statement(ctx, s, listing, "lookup", func() (p page, err error) {
		p.rows, p.more, err = s.d.store.Lookup(context.Background(), keys, maxBytes)
		return p, err
	})
	return p.rows, p.more, err
}

// Count implements sqlstore.Store.
func (s *session) Count(ctx context.Context, start, end []byte, rev int64) (live, newer int64, err error) {
	start, end = bytes.Clone(start), bytes.Clone(end)
	n, err := statement(ctx, s, query, "count", func() (n [2]int64, err error) {
		n[0], n[1], err = s.d.store.Count(context.Background(), start, end, rev)
		return n, err
	})
	return n[0], n[1], err
}

// SeekNth implements sqlstore.Store.
func (s *session) SeekNth(ctx context.Context, start, end []byte, n int) ([]byte, error) {
	start, end = bytes.Clone(start), bytes.Clone(end)
	return statement(ctx, s, query, "seek_nth", func() ([]byte, error) {
		return s.d.store.SeekNth(context.Background(), start, end, n)
	})
}

// LatestAtOrBefore implements sqlstore.Store.
func (s *session) LatestAtOrBefore(ctx context.Context, ranges []sqlstore.Partition) ([]sqlstore.Row, error) {
	own := make([]sqlstore.Partition, len(ranges))
	for i, r := range ranges {
		own[i] = sqlstore.Partition{Start: bytes.Clone(r.Start), End: bytes.Clone(r.End)}
	}
	return statement(ctx, s, query, "latest_at_or_before", func() ([]sqlstore.Row, error) {
		return s.d.store.LatestAtOrBefore(context.Background(), own)
	})
}

// Lengths implements sqlstore.Store.
func (s *session) Lengths(ctx context.Context, keys [][]byte) ([]int, error) {
	keys = cloneAll(keys)
	return statement(ctx, s, query, "lengths",
		func() ([]int, error) { return s.d.store.Lengths(context.Background(), keys) })
}

// Measure implements sqlstore.Store.
func (s *session) Measure(ctx context.Context, q sqlstore.MeasureQuery) (sqlstore.Measured, error) {
	q.Start, q.End = bytes.Clone(q.Start), bytes.Clone(q.End)
	return statement(ctx, s, query, "measure",
		func() (sqlstore.Measured, error) { return s.d.store.Measure(context.Background(), q) })
}

// Size implements sqlstore.Store.
func (s *session) Size(ctx context.Context) (total, inUse int64, err error) {
	n, err := statement(ctx, s, query, "size", func() (n [2]int64, err error) {
		n[0], n[1], err = s.d.store.Size(context.Background())
		return n, err
	})
	return n[0], n[1], err
}

// FreeSpace implements sqlstore.Store.
func (s *session) FreeSpace(ctx context.Context) (free, reserve int64, err error) {
	return s.d.store.FreeSpace(ctx)
}

// Defragment implements sqlstore.Store.
func (s *session) Defragment(ctx context.Context) error {
	_, err := statement(ctx, s, query, "defragment", func() (struct{}, error) {
		return struct{}{}, s.d.store.Defragment(context.Background())
	})
	return err
}

func cloneAll(keys [][]byte) [][]byte {
	own := make([][]byte, len(keys))
	for i, k := range keys {
		own[i] = bytes.Clone(k)
	}
	return own
}
