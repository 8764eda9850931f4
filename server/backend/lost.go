package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Who finds that the database lost what was acknowledged knows it from memory only. So
// that a restart does not forget it, the finder writes the lost row: what had been seen.
// Whoever opens the database, or leads, or follows, looks at that row, and does not serve
// while the chain row is behind it. sqlbrain recover goes beyond what it says and removes
// it; the right database, should it come back, is not behind.
//
// The row is written past the chain of commits, by whoever has something to say, with a
// compare-and-swap on itself. It only ever says more.

// lostTimeout bounds one attempt to write the row.
const lostTimeout = 5 * time.Second

// loadLost returns what the lost row says, nil if there is none.
func loadLost(ctx context.Context, store sqlstore.Store) (lost *coder.Lost, raw []byte, err error) {
	raw, err = store.Get(ctx, coder.LostKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the lost row: %w", err)
	}
	l, err := coder.DecodeLost(raw)
	if err != nil {
		// Somebody had something to say, and it cannot be told what.
		return nil, raw, fmt.Errorf("%w, says the lost row: %w", errDataLost, err)
	}
	return &l, raw, nil
}

// checkLost returns errDataLost if somebody found that the database lost data and it was
// not recovered since. The chain row is read behind the lost row: what was seen there
// before is there now, or is lost.
func (b *Backend) checkLost(ctx context.Context) error {
	lost, _, err := loadLost(ctx, b.store)
	if lost == nil {
		return err
	}
	var cur coder.Chain
	raw, err := b.store.Get(ctx, coder.ChainKey())
	if err == nil {
		cur, err = coder.DecodeChain(raw)
	}
	if err != nil && !errors.Is(err, sqlstore.ErrKeyNotFound) {
		return fmt.Errorf("reading the chain row: %w", err)
	}
	return judgeLost(*lost, cur)
}

// judgeLost returns errDataLost if what the chain row holds is behind what lost says.
func judgeLost(lost coder.Lost, cur coder.Chain) error {
	err := judgeChain(coder.Chain{Sequence: lost.Sequence, Term: lost.Term, Revision: lost.Revision}, cur)
	if errors.Is(err, errDataLost) {
		return fmt.Errorf("%w; member %x found that at %s; see sqlbrain recover", err, lost.Member, time.Unix(lost.At, 0).UTC().Format(time.RFC3339))
	}
	return nil
}

// missingSequences is how far the lost row goes beyond the chain row when a row was
// missing: farther than members raise the chain row, and less than recovery does.
const missingSequences = recoveredSequences >> 10

// rowMissing returns errDataLost for a commit that found a row missing.
func rowMissing(err error) error { return fmt.Errorf("%w: %w", errDataLost, err) }

// noteMissing notes that a commit took effect although a row of the table is missing.
// The chain row then holds what it should, and does not show the loss. So this node
// says that it has seen more than the chain row can reach without recovery.
func (b *Backend) noteMissing() {
	beyond := *b.seen.Load()
	beyond.Sequence += missingSequences
	b.noteChain(beyond)
}

// tellLost makes keepLost write down what this node has seen, because of cause.
func (b *Backend) tellLost(cause error) {
	if !errors.Is(cause, errDataLost) {
		return
	}
	select {
	case b.lost <- struct{}{}:
	default: // told already
	}
}

// keepLost waits until this node finds that data was lost, and sees to it that this is
// written down. It goes on trying: the process stays up to say why it does not serve.
func (b *Backend) keepLost(ctx context.Context) {
	select {
	case <-b.lost:
	case <-ctx.Done():
		select {
		case <-b.lost:
		default:
			return
		}
	}
	retry := &retrier{}
	level := slog.LevelError // once
	for ctx.Err() == nil {
		err := b.writeLost(ctx, lostTimeout)
		if err == nil {
			return
		}
		b.log.Log(ctx, level, "that data was lost cannot be written down, trying again: do not restart this server", "error", err)
		level = slog.LevelDebug
		_ = retry.wait(ctx) // whether ctx ended is looked at above
	}
	// The process ends, and what it knows with it.
	if err := b.writeLost(context.WithoutCancel(ctx), handoverTimeout); err != nil {
		b.log.Error("that data was lost was not written down", "error", err)
	}
}

// writeLost makes the lost row say at least what this node has seen.
func (b *Backend) writeLost(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	seen := b.newestSeen()
	if seen == (coder.Chain{}) {
		return nil // it has seen nothing: others have, or the chain row is gone, which everybody sees
	}
	for {
		known, raw, err := loadLost(ctx, b.store)
		if err != nil && !errors.Is(err, errDataLost) {
			return err
		}
		next := coder.Lost{Sequence: seen.Sequence, Term: seen.Term, Revision: seen.Revision, Member: b.MemberID(), At: time.Now().Unix()}
		if known != nil {
			if known.Sequence >= next.Sequence && known.Term >= next.Term && known.Revision >= next.Revision {
				return nil
			}
			next.Sequence, next.Term, next.Revision = max(next.Sequence, known.Sequence), max(next.Term, known.Term), max(next.Revision, known.Revision)
		}
		batch := b.store.BeginBatchWrite()
		if raw == nil {
			batch.PutIfNotExist(coder.LostKey(), coder.EncodeLost(next))
		} else {
			batch.CAS(coder.LostKey(), coder.EncodeLost(next), raw)
		}
		err = batch.Commit(ctx)
		var conflict *sqlstore.Conflict
		switch {
		case err == nil:
			b.log.Error("it is written down that data was lost: no server serves until sqlbrain recover was run",
				"revision", next.Revision, "term", next.Term, "sequence", next.Sequence)
			return nil
		case errors.As(err, &conflict), errors.Is(err, sqlstore.ErrUncertain):
			// Another member was faster, or this attempt took effect: look again.
			if ctx.Err() != nil {
				return err
			}
		default:
			return err
		}
	}
}
