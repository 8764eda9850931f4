package read

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/keyspace"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Reader answers requests at a revision, from the view as far as that knows, else from the
// database. It keeps no snapshot open: rows above the revision are filtered, and replaced by
// the version that the revision sees. Safe for concurrent use.
type Reader struct {
	node      Node
	store     sqlstore.Store
	view      *keyspace.View
	timeout   *mvcc.Timeout
	maxSorted int
	sorted    atomic.Int64               // bytes of the ranges that streams have sorted and not sent yet
	counting  chan struct{}              // holds a token while a span is counted: concurrent requests count the same
	turns     chan struct{}              // holds a token for each client's range that reads the table beyond its first page
	lookups   gatherer[sqlstore.ListRow] // of index rows with their version rows
	rows      gatherer[[]byte]           // of single rows
}

// MaxSorted is how many bytes of keys and values the ranges may have together that streams
// sort. They are in memory as a whole.
const MaxSorted = 64 << 20

// pagesOfTurn is how many pages a client's range reads before others have their turn. As many ranges as there are
// processors read the table beyond their first page at once: more would finish no sooner, and requests that read
// little would wait for a processor after all of them.
const pagesOfTurn = 16

// Node is the state of the node that a Reader reads for.
type Node interface {
	// Revision returns the newest visible revision.
	Revision() int64
	// CompactRevision returns the compact revision that the node knows, -1 if there is none.
	CompactRevision() int64
	// ReadRevision returns the revision to read at, if as permits the request there. A
	// linearizable one includes every write acknowledged before the call.
	ReadRevision(ctx context.Context, as auth.Permit, linearizable bool) (int64, error)
	// Mark returns a compact revision such that nothing at or above it was removed before
	// the call.
	Mark(ctx context.Context) (int64, error)
	// Await returns once the visible revision has reached rev.
	Await(ctx context.Context, rev int64) error
	// CountRange counts a range of several keys by whether it read the table.
	CountRange(table bool)
}

// New returns a Reader of store and of view, which the node's changes pass through. timeout bounds
// requests. maxSorted is MaxSorted, or less in tests.
func New(node Node, store sqlstore.Store, view *keyspace.View, timeout *mvcc.Timeout, maxSorted int) *Reader {
	r := &Reader{
		node: node, store: store, view: view, timeout: timeout, maxSorted: maxSorted, counting: make(chan struct{}, 1),
		turns: make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
	r.lookups.timeout, r.rows.timeout = timeout, timeout
	r.lookups.found = func(row sqlstore.ListRow) bool { return row.Key != nil }
	r.lookups.read = func(ctx context.Context, keys [][]byte) ([]sqlstore.ListRow, bool, error) {
		return r.store.Lookup(ctx, keys, maxReadBytes)
	}
	r.rows.read = func(ctx context.Context, keys [][]byte) ([][]byte, bool, error) { // index rows, which are small
		rows, err := r.store.MultiGet(ctx, keys)
		return rows, false, err
	}
	return r
}

// MaxRaces bounds how often a read of the current revision starts again because compaction
// overtook it.
const MaxRaces = 8

// ErrOvertaken: compaction overtook a read of the current revision MaxRaces times. The node may
// be far behind, or no longer lead. It is not mvcc.ErrCompacted, which is for revisions that
// the client asked for.
var ErrOvertaken = fmt.Errorf("%w: compaction overtakes the reads", mvcc.ErrNotServing)

// Stable calls read with a reading at the visible revision, and again at a newer one if compaction
// overtook it. The result of read is valid only if Stable returns nil. read must start afresh with each
// call, and use its ctx, which ends with the request timeout. Its error is mvcc.ErrCompacted only if it asked for an
// older revision. Errors: read's, those of Node, ErrOvertaken.
func (r *Reader) Stable(ctx context.Context, as auth.Permit, linearizable bool,
	read func(ctx context.Context, now *Reading) error) error {
	ctx, cancel := r.timeout.Bound(ctx)
	defer cancel()
	return mvcc.PublicError(ctx, r.stable(ctx, as, linearizable, read))
}

// stable is Stable within the request timeout.
func (r *Reader) stable(ctx context.Context, as auth.Permit, linearizable bool,
	read func(ctx context.Context, now *Reading) error) error {
	for range MaxRaces {
		now, err := r.Now(ctx, as, linearizable)
		if err != nil {
			return err
		}
		if err = read(ctx, now); errors.Is(err, mvcc.ErrCompacted) {
			return err
		}
		if overtaken := now.Check(ctx); !errors.Is(overtaken, mvcc.ErrCompacted) {
			return cmp.Or(overtaken, err)
		}
		// A follower may hear of a compaction before the revision it is at.
		if err := r.node.Await(ctx, r.node.CompactRevision()); err != nil {
			return err
		}
	}
	return ErrOvertaken
}

// Reading is what one request reads, at one revision, which was not above the visible revision when
// the reading began. Its results are valid only once Check has returned nil. Not safe for
// concurrent use.
type Reading struct {
	reader *Reader
	rev    int64
	purges int64 // of the view, before anything was read
	table  bool  // rows were read
	// unchecked says that rows were read since the last check: compaction may have removed
	// some that rev needs.
	unchecked bool
	// counted are counts to be remembered once they are checked.
	counted []countedSpan
	// pageBytes bounds the rows that one statement of Scan reads; 0: the store's own bound.
	pageBytes int
	// turn is how many pages of the table the reading reads before others have their turn, 0 if it takes no turns.
	turn int
	// indexed, if set, gets the index row of each record that Scan reads in the table; with tableOnly that is each one.
	indexed   func(key []byte, x coder.Index)
	tableOnly bool
}

// OnIndex makes Scan call f with the index row of each record that it does not find in memory.
func (r *Reading) OnIndex(f func(key []byte, x coder.Index)) { r.indexed = f }

// At returns a reading at revision rev, which must not be above the visible revision.
func (r *Reader) At(rev int64) *Reading {
	return &Reading{reader: r, rev: rev, purges: r.view.Purges()}
}

// InTurns is At for a client's ranges, whose caller may take its time after each page.
func (r *Reader) InTurns(rev int64) *Reading {
	return &Reading{reader: r, rev: rev, purges: r.view.Purges(), turn: 1}
}

// Now returns a reading at the visible revision, if as permits the request there.
func (r *Reader) Now(ctx context.Context, as auth.Permit, linearizable bool) (*Reading, error) {
	visible, err := r.node.ReadRevision(ctx, as, linearizable)
	if err != nil {
		return nil, err
	}
	return &Reading{reader: r, rev: visible, purges: r.view.Purges(), turn: pagesOfTurn}, nil
}

// Past returns a reading at the revision that a request asks for when r is at the newest one:
// r itself if it asks for none, which is 0 or less. Errors: mvcc.ErrCompacted,
// mvcc.ErrFutureRevision.
func (r *Reading) Past(asked int64) (*Reading, error) {
	switch {
	case asked <= 0:
		return r, nil
	case asked > r.rev:
		return nil, mvcc.ErrFutureRevision
	case asked < r.reader.node.CompactRevision():
		return nil, mvcc.ErrCompacted
	default:
		return &Reading{reader: r.reader, rev: asked, purges: r.purges, turn: r.turn}, nil
	}
}

// Revision returns the revision that is read.
func (r *Reading) Revision() int64 { return r.rev }

// CompactRevision returns the compact revision that the node knows, -1 if there is none.
func (r *Reading) CompactRevision() int64 { return r.reader.node.CompactRevision() }

// FromTable reports whether rows were read.
func (r *Reading) FromTable() bool { return r.table }

// Check returns mvcc.ErrCompacted if compaction may have removed rows that the reading needed
// before they were read. If it returns nil, what was read until the call holds.
func (r *Reading) Check(ctx context.Context) error {
	if r.unchecked {
		mark, err := r.reader.node.Mark(ctx)
		if err != nil {
			return err
		}
		if r.rev < mark {
			return mvcc.ErrCompacted
		}
		r.unchecked = false
	}
	for _, c := range r.counted {
		r.reader.view.Remember(c.span, r.rev, c.n, r.purges)
	}
	r.counted = nil
	return nil
}

// readsTable notes that rows are about to be read.
func (r *Reading) readsTable() { r.table, r.unchecked = true, true }

// countedSpan is how many keys a span has at a reading's revision.
type countedSpan struct {
	span coder.Span
	n    int64
}
