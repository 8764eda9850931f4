package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
	"github.com/sqlbrain/sqlbrain/watch"
)

// The database can lose commits that this node has shown, and another leader can then give
// their revisions to other commits. Once the table has grown as long again, the fence row does
// not show that. So the node remembers what its newest revisions contained, and compares them
// with the table before it continues after another leader, or from the table, and before it
// leads. Within a leadership that is not needed: a leader whose commits are lost cannot commit.

// remembered is how many of the newest revisions the node compares. The newest one is enough,
// unless the other commit of that revision happens to be the same.
const remembered = 32

// errForgotten says that compaction has removed all revisions that could be compared.
var errForgotten = fmt.Errorf("%w: the revisions that this node has shown last were compacted", fence.ErrUnproven)

// shown has the fingerprints of the newest revisions that a node has shown. Safe for concurrent
// use.
type shown struct {
	mu     sync.Mutex
	prints []fingerprint // in order

	// term is the last term in which they were compared, or added.
	term atomic.Int64
	// doubts counts the calls of Doubt, and settled those before the last comparison.
	doubts, settled atomic.Int64
}

// fingerprint is the hash of a revision's events.
type fingerprint struct {
	revision int64
	sum      uint64
}

// add remembers events, which are whole revisions in order, and after those known.
func (s *shown) add(events []*watch.Event) {
	prints := fingerprints(newest(events, remembered))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prints = append(s.prints, prints...)
	s.prints = slices.Delete(s.prints, 0, max(0, len(s.prints)-remembered))
}

// forget makes the node compare nothing before the next call of add.
func (s *shown) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prints = nil
}

func (s *shown) list() []fingerprint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.prints)
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

// verify compares the newest revisions that this node has shown with log. Errors:
// ErrNotServing, because the database has lost them; errForgotten; the database's.
func (b *Replica) verify(ctx context.Context, log *history.Log) error {
	prints := b.shown.list()
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
		found := fingerprints(events)
		for len(prints) > 0 && prints[0].revision < next {
			if !slices.Contains(found, prints[0]) {
				return b.replaced(prints[0].revision)
			}
			prints = prints[1:]
		}
	}
	return nil
}

// replaced makes the node stop serving, because the table has another commit at a revision that
// the node has shown.
func (b *Replica) replaced(revision int64) error {
	err := fmt.Errorf("revision %d in the table is not the one that this node has shown", revision)
	if b.seen.Term()-b.shown.term.Load() >= fence.RecoveredTerms {
		return b.stopServing(fmt.Errorf("%w: the database was recovered since; restart this server", err))
	}
	b.seen.Missing() // the fence row does not show the loss
	return b.stopServing(fmt.Errorf("%w: %w", fence.ErrDataLost, err))
}

// Verify makes sure that the revisions which this node has shown are in the history of the
// leader of a term, 0 if that is not known. The leader must have said in the term that it leads,
// and nothing of that leader may be shown before. With anew, and after Doubt, Verify looks at the table even if it
// was the last term for which it did so. Errors: ErrNotServing if the database has lost revisions, the
// database's; an error that CatchUp removes.
func (b *Replica) Verify(ctx context.Context, term int64, anew bool) error {
	doubts := b.shown.doubts.Load()
	if !anew && (term == 0 || term == b.shown.term.Load() && doubts == b.shown.settled.Load()) {
		return nil
	}
	if _, err := b.verifies.Get(ctx); err != nil {
		return err
	}
	b.shown.term.Store(term)
	b.shown.settled.Store(doubts)
	return nil
}

// Doubt makes the next Verify look at the table. It is called when this node no longer hears the leader, and when it
// follows another one: a database that lost its newest commits may have lost the leader's term with them, and another
// leader has a term of that number then.
func (b *Replica) Doubt() { b.shown.doubts.Add(1) }

// compare compares all that this node has seen with the table, for fence.LossRecorder. The fence row shows
// no loss.
func (b *Replica) compare(ctx context.Context) error {
	newest := b.seen.Newest().Revision
	if _, err := b.verifies.Get(ctx); err != nil {
		return err
	}
	if prints := b.shown.list(); len(prints) == 0 || prints[len(prints)-1].revision < newest {
		return fmt.Errorf("%w: this node knows of revision %d, and has not shown it", fence.ErrUnproven, newest)
	}
	return nil
}

// CompareLast compares what this node has seen with the table, and reports a loss. It is for a node that
// serves no more for another reason, and returns once the table has answered, or ctx has ended.
func (b *Replica) CompareLast(ctx context.Context) {
	for failures := 1; ; failures++ {
		bounded, cancel := context.WithTimeout(ctx, timing.LookTimeout)
		_, _, err := b.look(bounded)
		if err == nil {
			_, err = b.verifies.Get(bounded)
		}
		cancel()
		if err == nil || errors.Is(err, mvcc.ErrNotServing) || errors.Is(err, fence.ErrUnproven) ||
			retry.Database.Wait(ctx, failures) != nil {
			return
		}
	}
}

// continues is verify before the node shows more of log, or leads. If nothing is left to
// compare it discards what the node has in memory.
func (b *Replica) continues(ctx context.Context, log *history.Log) error {
	err := b.verify(ctx, log)
	if errors.Is(err, errForgotten) {
		return b.jump(b.Revision())
	}
	return err
}

// rememberNewest remembers the newest revision of a replica that has just been opened.
func (b *Replica) rememberNewest(ctx context.Context) error {
	rev := b.Revision()
	events, _, err := b.history.Changes(ctx, []byte{0}, []byte{0}, rev, rev, history.UsualBytes)
	var compacted *watch.CompactedError
	if err != nil && !errors.As(err, &compacted) { // if it was compacted, catching up discards the memory
		return fmt.Errorf("reading revision %d: %w", rev, err)
	}
	b.shown.add(events)
	b.shown.term.Store(b.seen.Term())
	return nil
}
