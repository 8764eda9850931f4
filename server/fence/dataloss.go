package fence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// The data loss marker records that the database lost acknowledged data: it says what the member
// that noticed had seen. Every member looks at it, and does not serve while the fence row
// is older. It is written outside the fenced commits, with a compare-and-swap on itself,
// and its values only increase. So a restart does not make a member forget what it saw.
// "sqlbrain recover" removes the row, after raising the fence row above it. If the right
// database comes back, its fence row is not older, and the data loss marker has no effect.
//
// A leader that does not know of the loss may write as much as was lost before it reads the
// marker. So the marker has a sequence that no leader reaches, if the loss is proven: by the commit that
// writes it, which requires that the fence row is older still and raises its attempt, or, once it has grown as long
// again, by the content of a revision. A replica that lags cannot mislead the member then: it has no other revisions,
// and takes no commit. A loss that is not proven stops only the members that know of it.

// recordTimeout bounds one attempt to write the data loss marker.
const recordTimeout = 5 * time.Second

// LoadDataLoss returns what the data loss marker says and its bytes, nil if there is none. Errors:
// ErrDataLost if the row cannot be decoded, the database's.
func LoadDataLoss(ctx context.Context, store sqlstore.Store) (lost *coder.DataLoss, raw []byte, err error) {
	raw, err = store.Get(ctx, coder.DataLossKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the data loss marker: %w", err)
	}
	lost, err = decodeDataLoss(raw)
	return lost, raw, err
}

// decodeDataLoss returns what a data loss marker says, or ErrDataLost: it reports a loss also if its content is
// unreadable.
func decodeDataLoss(raw []byte) (*coder.DataLoss, error) {
	l, err := coder.DecodeDataLoss(raw)
	if err != nil {
		return nil, fmt.Errorf("%w, says the data loss marker: %w", ErrDataLost, err)
	}
	return &l, nil
}

// rowMissing returns ErrDataLost for a commit that found a row missing.
func rowMissing(err error) error { return fmt.Errorf("%w: %w", ErrDataLost, err) }

// CheckDataLoss returns ErrDataLost if a member recorded that the database lost data and it was
// not recovered since.
func CheckDataLoss(ctx context.Context, store sqlstore.Store) error {
	_, err := ReadChecked(ctx, store)
	return err
}

// ReadChecked reads the fence row, and the rows of keys, in one statement with the data loss marker. rows has
// what they hold in this order, nil for a row that does not exist. Errors: that of CheckDataLoss, the
// database's.
//
// All are of one snapshot: what was seen in the fence row before the data loss marker was written is there, or
// is lost.
func ReadChecked(ctx context.Context, store sqlstore.Store, keys ...[]byte) (rows [][]byte, err error) {
	rows, err = store.MultiGet(ctx, slices.Concat(WatchedKeys(), keys))
	if err != nil {
		return nil, fmt.Errorf("reading the data loss marker and the fence row: %w", err)
	}
	return rows[1:], checkDataLoss(rows)
}

// WatchedKeys are the keys of the data loss marker and the fence row. Every member reads them regularly.
func WatchedKeys() [][]byte { return [][]byte{coder.DataLossKey(), coder.FenceKey()} }

// checkDataLoss is CheckDataLoss with the rows of WatchedKeys, in one snapshot.
func checkDataLoss(rows [][]byte) error {
	if rows[0] == nil {
		return nil
	}
	lost, err := decodeDataLoss(rows[0])
	if err != nil {
		return err
	}
	var cur coder.FenceToken
	if rows[1] != nil {
		if cur, err = coder.DecodeFenceToken(rows[1]); err != nil {
			return fmt.Errorf("reading the fence row: %w", err)
		}
	}
	return CheckMarker(*lost, cur)
}

// DecodeWatched returns what the fence row says, of the rows of WatchedKeys in one snapshot. Errors: those of
// CheckDataLoss, ErrDataLost if the fence row is gone or cannot be decoded.
func DecodeWatched(rows [][]byte) (cur coder.FenceToken, err error) {
	if err := checkDataLoss(rows); err != nil {
		return cur, err
	}
	return decodeToken(rows[1])
}

// checkWatched compares the rows of WatchedKeys with what was acknowledged: the errors of CheckDataLoss and CheckToken,
// and ErrDataLost if the fence row is gone or cannot be decoded.
func checkWatched(acknowledged coder.FenceToken, rows [][]byte) error {
	cur, err := DecodeWatched(rows)
	if err != nil {
		return err
	}
	return CheckToken(acknowledged, cur)
}

// ErrUnproven says that the table has no revision left by which a loss shows.
var ErrUnproven = errors.New("no revision is left by which a loss would show")

// LossRecorder writes the data loss marker when this process notices a loss.
type LossRecorder struct {
	store    sqlstore.Store
	log      *slog.Logger
	seen     *Seen
	member   uint64
	compare  func(context.Context) error
	reported chan struct{}
	fate     atomic.Int32                                                // LossFate
	tell     atomic.Pointer[func(context.Context, coder.DataLoss) error] // nil: there is nobody to tell
}

// NewLossRecorder returns a recorder that writes what seen knows, in the name of member.
// It writes nothing before Run. compare compares the revisions that the process has shown with those
// of the table, when the fence row shows no loss. Errors: ErrDataLost, after Seen.ObserveLoss if they
// differ, without if the table ends before them; ErrUnproven; the database's.
func NewLossRecorder(store sqlstore.Store, log *slog.Logger, seen *Seen, member uint64,
	compare func(context.Context) error) *LossRecorder {
	return &LossRecorder{store: store, log: log, seen: seen, member: member, compare: compare,
		reported: make(chan struct{}, 1)}
}

// Report makes Run write the row if cause is ErrDataLost. It does not wait.
func (r *LossRecorder) Report(cause error) {
	if !errors.Is(cause, ErrDataLost) {
		return
	}
	select {
	case r.reported <- struct{}{}:
		r.fate.CompareAndSwap(int32(LossNone), int32(LossPending))
	default: // reported before
	}
}

// Tell sets what makes another process write the row while this one cannot.
func (r *LossRecorder) Tell(tell func(context.Context, coder.DataLoss) error) { r.tell.Store(&tell) }

// recordOrTell is record, or makes another process write the row if that fails.
func (r *LossRecorder) recordOrTell(ctx context.Context) error {
	err := r.record(ctx, recordTimeout)
	tell := r.tell.Load()
	if err == nil || tell == nil || ctx.Err() != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	if told := (*tell)(ctx, r.lost(r.seen.Newest())); told != nil {
		return errors.Join(err, told)
	}
	r.fate.Store(int32(LossWritten))
	r.log.Error("another member has persisted the data loss marker; no member serves until 'sqlbrain recover' is run",
		"error", err)
	return nil
}

// RecordFor writes the data loss marker for another process, which cannot. known is what this process knows: nothing is
// written that no process can have seen. Errors: ErrUnproven, the database's.
func RecordFor(ctx context.Context, store sqlstore.Store, log *slog.Logger, known *Seen, lost coder.DataLoss) error {
	newest := known.Newest()
	if lost.Sequence-newest.Sequence > RecoveredSequences || lost.Term-newest.Term > RecoveredTerms ||
		lost.Revision-newest.Revision > RecoveredSequences {
		return fmt.Errorf("%w: term %d, sequence %d, revision %d of member %x are far above what was written", ErrUnproven,
			lost.Term, lost.Sequence, lost.Revision, lost.Member)
	}
	seen := NewSeen(func() int64 { return 0 })
	seen.Observe(coder.FenceToken{Sequence: lost.Sequence, Term: lost.Term, Revision: lost.Revision})
	log = log.With("member", fmt.Sprintf("%x", lost.Member))
	log.Error("another member reports that the database lost data")
	r := NewLossRecorder(store, log, seen, lost.Member, func(context.Context) error { return ErrUnproven })
	if err := r.record(ctx, recordTimeout); err != nil {
		return err
	}
	if r.Fate() != LossWritten {
		return fmt.Errorf("%w: the fence row has grown as far", ErrUnproven)
	}
	return nil
}

// Run waits for a report, and then writes the row. It repeats failed attempts, because the
// process keeps running to say why it does not serve. When ctx ends it makes a last
// attempt, because what this process knows ends with it.
func (r *LossRecorder) Run(ctx context.Context) {
	select {
	case <-r.reported:
	case <-ctx.Done():
		select {
		case <-r.reported:
		default:
			return
		}
	}
	level := slog.LevelError // once
	for failures := 1; ctx.Err() == nil; failures++ {
		err := r.recordOrTell(ctx)
		if err == nil {
			return
		}
		r.log.Log(ctx, level, "failed to persist the data loss marker, retrying; do not restart this member",
			"error", err)
		level = slog.LevelDebug
		_ = retry.Database.Wait(ctx, failures) // the loop checks ctx
	}
	if err := r.record(context.WithoutCancel(ctx), timing.Handover); err != nil {
		r.log.Error("failed to persist the data loss marker", "error", err)
	}
}

// record makes the row say at least what this process has seen.
func (r *LossRecorder) record(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for failures := 1; ; failures++ {
		seen := r.seen.Newest()
		if seen == (coder.FenceToken{}) {
			return nil // it has seen nothing: another member has, or the fence row is gone, which every member notices
		}
		known, raw, err := LoadDataLoss(ctx, r.store)
		if err != nil && !errors.Is(err, ErrDataLost) {
			return err
		}
		batch := r.store.BeginBatchWrite()
		// Without an answer in half of the time it writes what it can.
		next, open, err := r.prove(ctx, seen, timeout/2, batch)
		if err != nil {
			return err
		}
		if known != nil {
			if known.Sequence >= next.Sequence && known.Term >= next.Term && known.Revision >= next.Revision {
				return r.recorded(*known, open)
			}
			next.Sequence, next.Term, next.Revision = max(next.Sequence, known.Sequence), max(next.Term, known.Term),
				max(next.Revision, known.Revision)
		}
		if raw == nil {
			batch.PutIfNotExist(coder.DataLossKey(), coder.EncodeDataLoss(next))
		} else {
			batch.CAS(coder.DataLossKey(), coder.EncodeDataLoss(next), raw)
		}
		err = batch.Commit(ctx)
		var conflict *sqlstore.Conflict
		switch {
		case err == nil:
			return r.recorded(next, open)
		case errors.As(err, &conflict) && ctx.Err() == nil: // another member was faster, or the leader was: look again
		case errors.Is(err, sqlstore.ErrUncertain) && retry.Database.Wait(ctx, failures) == nil: // it may have taken effect
		default:
			return err
		}
	}
}

// prove returns what to write of a loss, and adds to batch what the commit requires as a proof. open is what the proof
// lacks, nil for nothing. The fence row must answer within timeout. Errors: the database's.
func (r *LossRecorder) prove(ctx context.Context, seen coder.FenceToken, timeout time.Duration,
	batch sqlstore.BatchWrite) (next coder.DataLoss, open, err error) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cur, token, err := readToken(bounded, r.store)
	next = r.lost(seen)
	next.At = time.Now().Unix()
	switch {
	case errors.Is(err, ErrDataLost): // without a fence row any data loss marker has an effect
		return next, nil, nil
	case err != nil && (bounded.Err() == nil || ctx.Err() != nil):
		return next, nil, err
	case err != nil:
		return next, err, nil
	case seen.Sequence-cur.Sequence > missingSequences/2: // proven before: no replica lags so far
		return next, nil, nil
	case errors.Is(CheckToken(seen, cur), ErrDataLost):
		next.Sequence += missingSequences
		proof := cur
		proof.Attempt++
		batch.CAS(coder.FenceKey(), coder.EncodeFenceToken(proof), token)
		return next, nil, nil
	case cur.Term-seen.Term >= RecoveredTerms:
		return next, errRefuted, nil
	}
	// The fence row has grown as long again, or was never older.
	switch err := r.compare(ctx); {
	case err == nil:
		return next, errRefuted, nil
	case errors.Is(err, ErrDataLost) && r.seen.missing.Load(): // what was seen is beyond the fence row now
		return r.prove(ctx, r.seen.Newest(), timeout, batch)
	default:
		return next, err, nil
	}
}

// lost is what this process says of a loss.
func (r *LossRecorder) lost(seen coder.FenceToken) coder.DataLoss {
	return coder.DataLoss{Sequence: seen.Sequence, Term: seen.Term, Revision: seen.Revision, Member: r.member}
}

// errRefuted says that the table has what this process has seen, or was recovered since.
var errRefuted = errors.New("nothing is missing")

// recorded logs what the marker says. open is what the proof of the loss lacks, nil for nothing.
func (r *LossRecorder) recorded(l coder.DataLoss, open error) error {
	log := r.log.With("revision", l.Revision, "term", l.Term, "sequence", l.Sequence)
	switch {
	case open == nil:
		r.fate.Store(int32(LossWritten))
		log.Error("persisted the data loss marker; no member serves until 'sqlbrain recover' is run")
	case errors.Is(open, errRefuted):
		r.fate.Store(int32(LossRefuted))
		log.Warn("the database has what this member has seen, or was recovered since; restart this member")
	case errors.Is(open, ErrUnproven):
		r.fate.Store(int32(LossUnproven))
		log.Error("suspected data loss could not be confirmed; this member stops, the others keep serving; see "+
			"docs/runbook.md",
			"error", open)
	default:
		return open
	}
	return nil
}

// LossFate says what became of the report that data was lost.
type LossFate int32

const (
	LossNone     LossFate = iota // nothing was reported
	LossPending                  // the marker is not persisted yet
	LossWritten                  // no server serves before a recovery
	LossUnproven                 // it could not be proven in time: the other servers continue
	LossRefuted                  // the table has what this process has seen, or was recovered since
)

// Fate returns what became of the report.
func (r *LossRecorder) Fate() LossFate { return LossFate(r.fate.Load()) }
