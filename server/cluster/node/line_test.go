package node

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

// line is a node's connection to the database. The test may cut it, so that every
// call fails at once, or hold it, so that calls wait: all of them, or those that
// concern one row.
type line struct {
	sqlstore.Store

	mu   sync.Mutex
	cut  bool
	held chan struct{} // nil, or closed when calls go on
	row  []byte        // nil: calls for any row are held
	late []sqlstore.BatchWrite
	// hanging: reads of this row hang until their context ends; they are sent to
	// hung with its error.
	hanging []byte
	hung    chan error
	// lag is how much later than it took effect a commit of the fence row is answered.
	// lagging: that is the case now.
	lag     time.Duration
	lagging atomic.Bool
	// refused: commits that write this row fail.
	refused []byte
	// committing is how many commits of the fence row wait.
	committing int
}

// cutOff makes every call fail, until the line is restored.
func (l *line) cutOff() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	l.letGo(false)
}

// hold makes calls wait, those that concern row alone if it is not nil. Commits
// whose context ends meanwhile reach the database when the line is restored.
func (l *line) hold(row []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		close(l.held) // those that wait look again
	}
	l.held, l.row = make(chan struct{}), row
}

// refuse makes commits fail that write row.
func (l *line) refuse(row []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = row
}

func (l *line) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = false
	l.letGo(true)
}

// letGo ends what hold began. The mutex is held.
func (l *line) letGo(deliver bool) {
	for _, b := range l.late {
		if deliver {
			_ = b.Commit(context.Background()) // nobody waits for the outcome
		}
	}
	l.late = nil
	if l.held != nil {
		close(l.held)
		l.held = nil
	}
}

// pass returns nil once the database may be asked about rows.
func (l *line) pass(ctx context.Context, rows ...[]byte) error {
	return l.passIf(ctx, func(row []byte) bool { return contains(rows, row) })
}

// passIf is pass for a call that concerns some rows.
func (l *line) passIf(ctx context.Context, concerns func(row []byte) bool) error {
	for {
		l.mu.Lock()
		held, cut := l.held, l.cut
		if held != nil && l.row != nil && !concerns(l.row) {
			held = nil
		}
		l.mu.Unlock()
		switch {
		case cut:
			return fmt.Errorf("%w: cut off", sqlstore.ErrUnavailable)
		case held == nil:
			return nil
		}
		select {
		case <-held:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", sqlstore.ErrUnavailable, ctx.Err())
		}
	}
}

func contains(rows [][]byte, row []byte) bool {
	return slices.ContainsFunc(rows, func(r []byte) bool { return bytes.Equal(r, row) })
}

// hang makes reads of a row hang for good that begin before the next call. The
// first error of a context that ended one is sent to the channel.
func (l *line) hang(row []byte) <-chan error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hanging, l.hung = row, make(chan error, 100)
	return l.hung
}

// hangs waits for the end of ctx, and returns its error, if reads of one of the keys hang.
func (l *line) hangs(ctx context.Context, keys ...[]byte) error {
	l.mu.Lock()
	hangs, hung := l.hanging != nil && contains(keys, l.hanging), l.hung
	l.mu.Unlock()
	if !hangs {
		return nil
	}
	note := func(err error) {
		select {
		case hung <- err:
		default: // the test has what it waits for
		}
	}
	note(nil)
	<-ctx.Done()
	note(ctx.Err())
	return ctx.Err()
}

func (l *line) Get(ctx context.Context, key []byte) ([]byte, error) {
	if err := l.hangs(ctx, key); err != nil {
		return nil, err
	}
	if err := l.pass(ctx, key); err != nil {
		return nil, err
	}
	return l.Store.Get(ctx, key)
}

func (l *line) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	if err := l.hangs(ctx, keys...); err != nil {
		return nil, err
	}
	// The poll and the look read the fence row among others. Who holds it means what reads it alone, or writes it.
	others := slices.DeleteFunc(slices.Clone(keys), func(k []byte) bool { return bytes.Equal(k, coder.FenceKey()) })
	if err := l.pass(ctx, others...); err != nil {
		return nil, err
	}
	return l.Store.MultiGet(ctx, keys)
}

func (l *line) List(ctx context.Context, q sqlstore.ListQuery) ([]sqlstore.ListRow, bool, error) {
	if err := l.pass(ctx); err != nil {
		return nil, false, err
	}
	return l.Store.List(ctx, q)
}

func (l *line) Lookup(ctx context.Context, keys [][]byte, maxBytes int) ([]sqlstore.ListRow, bool, error) {
	if err := l.pass(ctx); err != nil {
		return nil, false, err
	}
	return l.Store.Lookup(ctx, keys, maxBytes)
}

func (l *line) Count(ctx context.Context, start, end []byte, rev int64) (live, newer int64, err error) {
	if err := l.pass(ctx); err != nil {
		return 0, 0, err
	}
	return l.Store.Count(ctx, start, end, rev)
}

func (l *line) SeekNth(ctx context.Context, start, end []byte, n int) ([]byte, error) {
	if err := l.pass(ctx); err != nil {
		return nil, err
	}
	return l.Store.SeekNth(ctx, start, end, n)
}

func (l *line) LatestAtOrBefore(ctx context.Context, ranges []sqlstore.Partition) ([]sqlstore.Row, error) {
	if err := l.pass(ctx); err != nil {
		return nil, err
	}
	return l.Store.LatestAtOrBefore(ctx, ranges)
}

func (l *line) Lengths(ctx context.Context, keys [][]byte) ([]int, error) {
	if err := l.pass(ctx); err != nil {
		return nil, err
	}
	return l.Store.Lengths(ctx, keys)
}

func (l *line) Measure(ctx context.Context, q sqlstore.MeasureQuery) (sqlstore.Measured, error) {
	if err := l.pass(ctx); err != nil {
		return sqlstore.Measured{}, err
	}
	return l.Store.Measure(ctx, q)
}

func (l *line) Size(ctx context.Context) (total, inUse int64, err error) {
	if err := l.pass(ctx); err != nil {
		return 0, 0, err
	}
	return l.Store.Size(ctx)
}

func (l *line) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	return func(yield func(sqlstore.Row, error) bool) {
		if err := l.pass(ctx); err != nil {
			yield(sqlstore.Row{}, err)
			return
		}
		for row, err := range l.Store.Iter(ctx, r) {
			if !yield(row, err) {
				return
			}
			if err := l.pass(ctx); err != nil {
				yield(sqlstore.Row{}, err)
				return
			}
		}
	}
}

func (l *line) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(l.Store.BeginBatchWrite(), l.commit)
}

func (l *line) commit(ctx context.Context, b *storetest.Batch) error {
	l.mu.Lock()
	refuses := l.refused != nil && b.Writes(l.refused)
	l.mu.Unlock()
	if refuses {
		return fmt.Errorf("%w: refused", sqlstore.ErrUnavailable)
	}
	fence := b.Writes(coder.FenceKey())
	l.count(fence, 1)
	err := l.passIf(ctx, b.Writes)
	l.count(fence, -1)
	switch {
	case err == nil:
		err := b.BatchWrite.Commit(ctx)
		if d := l.answerLag(); d > 0 && fence {
			l.lagging.Store(true)
			<-time.After(d)
			l.lagging.Store(false)
		}
		return err
	case ctx.Err() != nil:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.late = append(l.late, b.BatchWrite)
		return fmt.Errorf("%w: %w", sqlstore.ErrUncertain, ctx.Err())
	default:
		return err
	}
}

func (l *line) answerLag() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lag
}

func (l *line) count(fence bool, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if fence {
		l.committing += n
	}
}

// waits reports whether a commit that changes the fence row is being held.
func (l *line) waits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.committing > 0
}
