package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/sqlbrain/sqlbrain/server/coalesce"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/watch"
)

// remembered is how many of the newest revisions the node compares. The newest one is enough,
// unless the other commit of that revision happens to be the same.
const remembered = 32

// errForgotten says that compaction has removed all revisions that could be compared.
var errForgotten = fmt.Errorf("%w: the newest revisions that were visible on this node were compacted",
	fence.ErrUnproven)

// Divergence checks whether the table still has the commits that were visible on this node. Safe for
// concurrent use.
//
// The database can lose commits that were visible, and another leader can then give
// their revisions to other commits. Once the table has grown as long again, the fence row does
// not tell. So the node remembers what its newest revisions contained, and compares them
// with the table before it continues after another leader, or from the table, and before it
// leads. Within a leadership that is not needed: a leader whose commits are lost cannot commit.
type Divergence struct {
	history     *history.Log
	seen        *fence.Seen
	stopServing func(cause error) error
	comparisons *coalesce.Group[struct{}]

	mu     sync.Mutex
	prints []fingerprint // of the newest visible revisions, in order

	// term is the last term in which they were compared, or added.
	term atomic.Int64
	// suspicions counts the calls of Suspect, and compared those before the last comparison.
	suspicions, compared atomic.Int64
}

// newDivergence returns a check that has nothing to compare. stopServing is called if the table
// differs. The caller must close the comparisons.
func newDivergence(log *history.Log, seen *fence.Seen, stopServing func(error) error,
	timeout time.Duration) *Divergence {
	d := &Divergence{history: log, seen: seen, stopServing: stopServing}
	d.comparisons = coalesce.New(timeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, d.compare(ctx, d.history)
	})
	return d
}

// fingerprint is the hash of a revision's events.
type fingerprint struct {
	revision int64
	sum      uint64
}

// remember remembers events, which are whole revisions in order, and after those known.
func (d *Divergence) remember(events []*watch.Event) {
	prints := fingerprints(newest(events, remembered))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.prints = append(d.prints, prints...)
	d.prints = slices.Delete(d.prints, 0, max(0, len(d.prints)-remembered))
}

// forget makes the node compare nothing before the next call of remember.
func (d *Divergence) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.prints = nil
}

func (d *Divergence) list() []fingerprint {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.prints)
}

// newest returns the events of the last n revisions.
func newest(events []*watch.Event, n int) []*watch.Event {
	i := len(events)
	for last := int64(-1); i > 0; i-- {
		if rev := events[i-1].Record.ModRevision; rev != last {
			if n == 0 {
				break
			}
			last = rev
			n--
		}
	}
	return events[i:]
}

// fingerprints returns one for each revision of events.
func fingerprints(events []*watch.Event) []fingerprint {
	var prints []fingerprint
	h := xxhash.New()
	var numbers []byte
	for i, e := range events {
		r := e.Record
		numbers = binary.AppendVarint(append(numbers[:0], byte(e.Type)), e.PrevRevision)
		numbers = binary.AppendUvarint(numbers, uint64(len(r.Key)))
		_, _ = h.Write(numbers) // never fails
		_, _ = h.Write(r.Key)
		if e.Type != watch.Delete {
			numbers = binary.AppendVarint(numbers[:0], r.CreateRevision)
			numbers = binary.AppendVarint(numbers, r.Version)
			numbers = binary.AppendVarint(numbers, r.Lease)
			numbers = binary.AppendUvarint(numbers, uint64(len(r.Value)))
			_, _ = h.Write(numbers)
			_, _ = h.Write(r.Value)
		}
		if i+1 == len(events) || events[i+1].Record.ModRevision != r.ModRevision {
			prints = append(prints, fingerprint{r.ModRevision, h.Sum64()})
			h.Reset()
		}
	}
	return prints
}

// Suspect makes the next Check compare with the table. It is called when this node no longer hears the leader, and
// when it follows another one: a database that lost its newest commits may have lost the leader's term with them, and
// another leader has a term of that number then.
func (d *Divergence) Suspect() { d.suspicions.Add(1) }

// Check makes sure that the revisions which were visible on this node are in the history of the
// leader of a term, 0 if that is not known. The leader must have said in the term that it leads,
// and nothing of that leader may be visible before. With anew, and after Suspect, Check compares with the table even
// if it did so in that term. Errors: mvcc.ErrNotServing if the database has lost revisions, the
// database's; an error that CatchUp removes.
func (d *Divergence) Check(ctx context.Context, term int64, anew bool) error {
	suspicions := d.suspicions.Load()
	if !anew && (term == 0 || term == d.term.Load() && suspicions == d.compared.Load()) {
		return nil
	}
	if err := d.compareShared(ctx); err != nil {
		return err
	}
	d.checkedIn(term)
	d.compared.Store(suspicions)
	return nil
}

// checkedIn records that the newest revisions were compared, or added, in a term.
func (d *Divergence) checkedIn(term int64) { d.term.Store(term) }

// compareShared is compare with the node's log. Concurrent callers share a comparison.
func (d *Divergence) compareShared(ctx context.Context) error {
	_, err := d.comparisons.Get(ctx)
	return err
}

// compareAll compares all that this node has seen with the table, for fence.LossRecorder. The fence row
// does not show a loss.
func (d *Divergence) compareAll(ctx context.Context) error {
	newest := d.seen.Newest().Revision
	if err := d.compareShared(ctx); err != nil {
		return err
	}
	if prints := d.list(); len(prints) == 0 || prints[len(prints)-1].revision < newest {
		return fmt.Errorf("%w: this node knows of revision %d, which was not visible on it", fence.ErrUnproven, newest)
	}
	return nil
}

// compare compares the newest revisions that were visible on this node with log. Errors:
// mvcc.ErrNotServing, because the database has lost them; errForgotten; the database's.
func (d *Divergence) compare(ctx context.Context, log *history.Log) error {
	prints := d.list()
	for len(prints) > 0 {
		events, next, err := log.Changes(ctx, []byte{0}, []byte{0}, prints[0].revision, prints[len(prints)-1].revision,
			history.UsualBytes)
		var compacted *watch.CompactedError
		switch {
		case errors.As(err, &compacted):
			prints = slices.DeleteFunc(prints, func(p fingerprint) bool { return p.revision < compacted.Revision })
			if len(prints) == 0 {
				return errForgotten
			}
			continue
		case err != nil:
			return fmt.Errorf("comparing revision %d with the log: %w", prints[0].revision, err)
		}
		inTable := fingerprints(events)
		for len(prints) > 0 && prints[0].revision < next {
			if !slices.Contains(inTable, prints[0]) {
				missing := len(inTable) == 0 || inTable[len(inTable)-1].revision < prints[0].revision
				return d.diverged(prints[0].revision, missing)
			}
			prints = prints[1:]
		}
	}
	return nil
}

// diverged makes the node stop serving, because the table has another commit at a revision that
// was visible on it. If the log ended before that revision, it is missing, which proves nothing yet: a replica of the
// database that lags answers the same. If it is lost, the fence row is older as well.
func (d *Divergence) diverged(revision int64, missing bool) error {
	err := fmt.Errorf("revision %d in the table is not the one that was visible on this node", revision)
	if d.seen.Term()-d.term.Load() >= fence.RecoveredTerms {
		return d.stopServing(fmt.Errorf("%w: the database was recovered since; restart this server", err))
	}
	if !missing {
		d.seen.ObserveLoss() // the fence row does not show the loss
	}
	return d.stopServing(fmt.Errorf("%w: %w", fence.ErrDataLost, err))
}

// rememberFromTable remembers the newest revision of a replica that has just been opened.
func (d *Divergence) rememberFromTable(ctx context.Context, rev int64) error {
	events, _, err := d.history.Changes(ctx, []byte{0}, []byte{0}, rev, rev, history.UsualBytes)
	var compacted *watch.CompactedError
	if err != nil && !errors.As(err, &compacted) { // if it was compacted, catching up discards the memory
		return fmt.Errorf("reading revision %d: %w", rev, err)
	}
	d.remember(events)
	d.checkedIn(d.seen.Term())
	return nil
}
