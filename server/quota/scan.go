package quota

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

const (
	// scanShare bounds the load of a scan: its statements take at most that fraction of the time.
	scanShare = 10
	// The limit of a page, in rows, is adapted so that reading it takes between half of scanPage and scanPage.
	scanPage          = 50 * time.Millisecond
	scanFirst         = 256
	scanMost          = 8192
	scanTimeout       = 5 * time.Second
	scanTries         = 3 // of a page
	scanPendingCommit = 100_000
)

// ErrScanInterrupted: compaction removed rows, and it is not known which. The scan has to begin again.
var ErrScanInterrupted = errors.New("the scan was interrupted by a removal of unknown outcome")

// errPage says that a page has to be read again, with fewer rows.
var errPage = errors.New("too much was written while a page was read")

// scan is a scan under way: the bytes of rows below a key, kept up to date by commits and removals.
type scan struct {
	through     []byte // the rows below it are counted
	bytes       int64
	pending     []change // commits since the page that is being read began, of rows from through
	overflowed  bool     // they were too many to keep
	interrupted bool
	recorded    chan struct{} // closed when the next commit is recorded
}

// change is by how much a commit changed a row.
type change struct {
	sequence int64
	key      []byte
	bytes    int64
}

func (s *scan) signal() {
	close(s.recorded)
	s.recorded = make(chan struct{})
}

func (s *scan) changed(sequence int64, key []byte, n int64) {
	switch {
	case bytes.Compare(key, s.through) < 0:
		s.bytes += n
	case len(s.pending) < scanPendingCommit:
		s.pending = append(s.pending, change{sequence, key, n})
	default:
		s.overflowed = true
	}
}

// Scan counts the bytes of all counted rows in store, page by page, while commits and compaction continue, and corrects
// the count. Each page is a snapshot that includes the fence row, so that it is known which commits it has. It returns
// how much the count was wrong. Only one may run at a time. Errors: ErrScanInterrupted, the database's, ctx's.
func (c *Count) Scan(ctx context.Context, store sqlstore.Store) (corrected int64, err error) {
	lo, hi := coder.CountedBounds()
	c.mu.Lock()
	c.removed = -1
	c.scan = &scan{through: lo, recorded: make(chan struct{})}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.scan = nil
		c.mu.Unlock()
	}()
	limit, failures := scanFirst, 0
	for at := lo; bytes.Compare(at, hi) < 0; {
		started := time.Now()
		end, err := c.scanPage(ctx, store, sqlstore.MeasureQuery{Start: at, End: hi, Limit: limit})
		took := time.Since(started)
		switch {
		case err == nil:
			at, failures = end, 0
		case errors.Is(err, ErrScanInterrupted) || ctx.Err() != nil || failures == scanTries:
			return 0, err
		default:
			failures++
		}
		if err != nil { // rows with large values may follow those with small ones
			limit = max(limit/8, 1)
		} else if took > scanPage {
			limit = max(limit/2, 1)
		} else if took < scanPage/2 {
			limit = min(2*limit, scanMost)
		}
		if err := retry.Sleep(ctx, (scanShare-1)*took); err != nil {
			return 0, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.scan.interrupted {
		return 0, ErrScanInterrupted
	}
	added := c.scan.bytes + c.removed
	corrected = added - c.added
	c.added, c.known = added, true
	return corrected, nil
}

// scanPage counts the rows of q, and returns where the next page starts.
func (c *Count) scanPage(ctx context.Context, store sqlstore.Store, q sqlstore.MeasureQuery) (end []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	if err := c.turn.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer c.turn.Release(1)
	c.mu.Lock()
	c.scan.pending, c.scan.overflowed = nil, false
	c.mu.Unlock()
	m, token, removed, err := measure(ctx, store, q)
	if err != nil {
		return nil, err
	}
	if end = q.End; m.Rows == int64(q.Limit) {
		end = append(m.Last, 0)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.sequence < token.Sequence { // the page has a commit that is still to be recorded
		recorded := c.scan.recorded
		c.mu.Unlock()
		select {
		case <-recorded:
		case <-ctx.Done():
		}
		c.mu.Lock()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	s := c.scan
	if c.removed < 0 {
		c.removed = removed
	}
	switch {
	case s.interrupted || c.removed != removed: // another process may still remove rows
		return nil, ErrScanInterrupted
	case s.overflowed:
		return nil, errPage
	}
	s.bytes += m.Bytes
	for _, p := range s.pending {
		if p.sequence > token.Sequence && bytes.Compare(p.key, end) < 0 {
			s.bytes += p.bytes
		}
	}
	s.through, s.pending = end, nil
	return end, nil
}

// measure measures rows, and returns what the fence row and the removed row hold in the same snapshot. A missing row is
// zero.
func measure(ctx context.Context, store sqlstore.Store, q sqlstore.MeasureQuery) (m sqlstore.Measured,
	token coder.FenceToken, removed int64, err error) {
	q.Also = [2][]byte{coder.FenceKey(), coder.RemovedKey()}
	if m, err = store.Measure(ctx, q); err != nil {
		return m, token, 0, err
	}
	var bad error
	if m.Also[0] != nil {
		token, bad = coder.DecodeFenceToken(m.Also[0])
	}
	if m.Also[1] != nil {
		removed, err = coder.DecodeInt64(m.Also[1])
	}
	if err = cmp.Or(bad, err); err != nil {
		err = fmt.Errorf("reading the bytes of rows: %w", err)
	}
	return m, token, removed, err
}
