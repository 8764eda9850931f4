package fence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

// faulty is a store whose next commit goes wrong as fault says, once.
type faulty struct {
	sqlstore.Store
	fault func(commit func() error) error
	row   func(ctx context.Context, read func() ([]byte, error)) ([]byte, error) // reads the fence row; nil: as it is
	reads atomic.Int64
}

func (f *faulty) Get(ctx context.Context, key []byte) ([]byte, error) {
	f.reads.Add(1)
	if f.row != nil && string(key) == string(coder.FenceKey()) {
		return f.row(ctx, func() ([]byte, error) { return f.Store.Get(ctx, key) })
	}
	return f.Store.Get(ctx, key)
}

func (f *faulty) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	f.reads.Add(1)
	return f.Store.MultiGet(ctx, keys)
}

func (f *faulty) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(f.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		commit := func() error { return b.BatchWrite.Commit(context.WithoutCancel(ctx)) }
		fault := f.fault
		if fault == nil {
			return commit()
		}
		f.fault = nil
		return fault(commit)
	})
}

// always makes each commit go wrong as fault says.
func (f *faulty) always(fault func(commit func() error) error) {
	f.fault = func(commit func() error) error {
		defer f.always(fault)
		return fault(commit)
	}
}

func newStore(t *testing.T) *faulty {
	t.Helper()
	store := memstore.New()
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return &faulty{Store: store}
}

// clock is a lease's clock that a test sets.
type clock struct{ time.Duration }

func (c *clock) now() time.Duration { return c.Duration }

func acquire(t *testing.T, store sqlstore.Store, lease *ReadLease) *Holder {
	t.Helper()
	h, err := Acquire(t.Context(), Config{
		Store: store, Log: slog.New(slog.DiscardHandler), Lease: lease,
		Verify: func(coder.FenceToken) error { return nil }, Metrics: NewMetrics(prometheus.NewRegistry()),
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

var row = sqlstore.Row{Key: []byte("row"), Value: []byte("v")}

// commit commits a row that must not exist, at revision rev.
func commit(t *testing.T, h *Holder, rev int64, expectConflict bool) (Outcome, error) {
	t.Helper()
	return h.Commit(t.Context(), h.Next(rev, 0), time.Minute, expectConflict,
		func(b sqlstore.BatchWrite) { b.PutIfNotExist(row.Key, row.Value) })
}

func inTable(t *testing.T, store sqlstore.Store) coder.FenceToken {
	t.Helper()
	raw, err := store.Get(t.Context(), coder.FenceKey())
	if err != nil {
		t.Fatal(err)
	}
	c, err := coder.DecodeFenceToken(raw)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newLease() *ReadLease { return NewReadLease(false, false, (&clock{}).now) }

func TestLeaderStopsCommittingAfterFence(t *testing.T) {
	store := newStore(t)
	old := acquire(t, store, newLease())
	if got, want := old.Value(), (coder.FenceToken{Sequence: 1, Term: 1, Revision: 1}); got != want ||
		old.PredecessorMayAnswer() {
		t.Fatalf("an empty table: %+v", got)
	}
	if outcome, err := commit(t, old, 2, false); outcome != Written || err != nil {
		t.Fatal(outcome, err)
	}
	young := acquire(t, store, newLease())
	if got, want := young.Value(), (coder.FenceToken{Sequence: 3, Term: 2, Revision: 2}); got != want ||
		!young.PredecessorMayAnswer() {
		t.Fatalf("the successor: %+v", got)
	}
	if outcome, err := commit(t, old, 3, false); outcome != NotWritten || !errors.Is(err, ErrDeposed) {
		t.Fatalf("the deposed leader: %v, %v", outcome, err)
	}
	if got := inTable(t, store); got != young.Value() {
		t.Fatalf("the fence row holds %+v", got)
	}
}

// A database that lost a leader's first commits may have lost its term too. Another leader has a term of the same
// number then, and a sequence that may be higher.
func TestLeaderStopsCommittingAfterAnotherOneOfItsTerm(t *testing.T) {
	store := newStore(t)
	for name, uncertain := range map[string]bool{"a conflict": false, "an unknown outcome": true} {
		h := acquire(t, store, newLease())
		other := h.Value()
		other.Sequence += 5
		other.Revision += 2
		batch := store.BeginBatchWrite()
		batch.CAS(coder.FenceKey(), coder.EncodeFenceToken(other), coder.EncodeFenceToken(h.Value()))
		if err := batch.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := NotWritten
		if uncertain {
			want = Unknown
			store.fault = func(func() error) error { return sqlstore.ErrUncertain }
		}
		if outcome, err := commit(t, h, other.Revision, false); outcome != want || !errors.Is(err, ErrDeposed) {
			t.Errorf("%s: %v, %v", name, outcome, err)
		}
		if got := inTable(t, store); got != other {
			t.Errorf("%s: the fence row holds %+v", name, got)
		}
	}
}

func TestResignedPredecessorDoesNotAnswer(t *testing.T) {
	store := newStore(t)
	if err := acquire(t, store, newLease()).Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	if acquire(t, store, newLease()).PredecessorMayAnswer() {
		t.Error("it resigned")
	}
}

// TestInDoubtCommitIsReportedBeforeItIsResolved: while the database hangs, it is not resolved.
func TestInDoubtCommitIsReportedBeforeItIsResolved(t *testing.T) {
	store := newStore(t)
	h := acquire(t, store, newLease())
	before, called := int64(0), 0
	h.cfg.InDoubt = func() {
		called++
		if store.reads.Load() != before {
			t.Error("the fence row was read before")
		}
	}
	for _, c := range []struct {
		err  error
		want int
	}{{sqlstore.ErrUncertain, 1}, {&sqlstore.Conflict{}, 1}} {
		before = store.reads.Load()
		store.fault = func(func() error) error { return c.err }
		_, _ = commit(t, h, 2, false)
		if called != c.want {
			t.Errorf("after %v it was called %d times", c.err, called)
		}
	}
}

func TestUnknownOutcomesAreResolved(t *testing.T) {
	lost := func(func() error) error { return fmt.Errorf("%w: made up", sqlstore.ErrUncertain) }
	t.Run("it took effect", func(t *testing.T) {
		store := newStore(t)
		h := acquire(t, store, newLease())
		store.fault = func(commit func() error) error { return errors.Join(sqlstore.ErrUncertain, commit()) }
		if outcome, err := commit(t, h, 2, false); outcome != Written || err != nil || h.Value() != inTable(t, store) {
			t.Fatal(outcome, err, h.Value())
		}
	})
	t.Run("it did not, and never will", func(t *testing.T) {
		store := newStore(t)
		h := acquire(t, store, newLease())
		var late func() error
		store.fault = func(commit func() error) error { late = commit; return lost(commit) }
		if outcome, err := commit(t, h, 2, false); outcome != NotWritten || err != nil {
			t.Fatal(outcome, err)
		}
		if got, want := h.Value(), (coder.FenceToken{Sequence: 2, Term: 1, Revision: 1, Attempt: 1}); got != want ||
			inTable(t, store) != want {
			t.Fatalf("the row was not raised: %+v", got)
		}
		var conflict *sqlstore.Conflict
		if err := late(); !errors.As(err, &conflict) {
			t.Fatalf("the late packet: %v", err)
		}
		if outcome, err := commit(t, h, 2, false); outcome != Written || err != nil {
			t.Fatal("again:", outcome, err)
		}
	})
	t.Run("the context ends first", func(t *testing.T) {
		store := newStore(t)
		h := acquire(t, store, newLease())
		ctx, cancel := context.WithCancel(t.Context())
		store.fault = func(commit func() error) error { cancel(); return lost(commit) }
		if outcome, err := h.Commit(ctx, h.Next(2, 0), time.Minute, false,
			func(sqlstore.BatchWrite) {}); outcome != Unknown ||
			!errors.Is(err, context.Canceled) {
			t.Fatal(outcome, err)
		}
		if outcome, err := commit(t, h, 2, false); outcome != NotWritten || !errors.Is(err, context.Canceled) {
			t.Fatal("after it:", outcome, err)
		}
	})
	t.Run("the row went back to an earlier value", func(t *testing.T) {
		store := newStore(t)
		h := acquire(t, store, newLease())
		older := h.Value()
		if _, err := commit(t, h, 2, false); err != nil {
			t.Fatal(err)
		}
		store.fault = func(commit func() error) error {
			putRow(t, store.Store, coder.FenceKey(), coder.EncodeFenceToken(older))
			return lost(commit)
		}
		if outcome, err := h.Commit(t.Context(), h.Next(3, 0), time.Minute, false,
			func(sqlstore.BatchWrite) {}); outcome != Unknown || !errors.Is(err, ErrDataLost) {
			t.Fatal(outcome, err)
		}
		if got := inTable(t, store); got != older {
			t.Fatalf("the row was changed: %+v", got)
		}
	})
	t.Run("the row is missing when it is raised", func(t *testing.T) {
		store := newStore(t)
		h := acquire(t, store, newLease())
		store.fault = func(commit func() error) error {
			store.fault = func(commit func() error) error { return errors.Join(commit(), sqlstore.ErrRowMissing) }
			return lost(commit)
		}
		if outcome, err := commit(t, h, 2, false); outcome != Unknown || !errors.Is(err, ErrDataLost) {
			t.Fatal(outcome, err)
		}
	})
}

func TestConflictOfAnotherRowWritesNothing(t *testing.T) {
	for _, expected := range []bool{false, true} {
		store := newStore(t)
		h := acquire(t, store, newLease())
		if _, err := commit(t, h, 2, false); err != nil {
			t.Fatal(err)
		}
		before, reads := h.Value(), store.reads.Load()
		var conflict *sqlstore.Conflict
		if outcome, err := commit(t, h, 3, expected); outcome != NotWritten || !errors.As(err, &conflict) {
			t.Fatal(outcome, err)
		}
		if looked := store.reads.Load() > reads; looked == expected || inTable(t, store).Revision != before.Revision {
			t.Errorf("expected %v: looked %v, the row holds %+v", expected, looked, inTable(t, store))
		}
	}
}

func TestMissingRowIsDataLossOfAWrittenCommit(t *testing.T) {
	store := newStore(t)
	h := acquire(t, store, newLease())
	store.fault = func(commit func() error) error { return errors.Join(commit(), sqlstore.ErrRowMissing) }
	if outcome, err := commit(t, h, 2, false); outcome != Written || !errors.Is(err, ErrDataLost) {
		t.Fatal(outcome, err)
	}
	// The same token again would seem to be written, since the row has it already.
	if outcome, err := commit(t, h, 2, false); outcome != NotWritten || !errors.Is(err, ErrDataLost) {
		t.Fatal("after it:", outcome, err)
	}
}

func TestTakeRefusesDataWithoutAFenceRow(t *testing.T) {
	store := newStore(t)
	batch := store.BeginBatchWrite()
	batch.Put(coder.EncodeIndexKey([]byte("k")), []byte("v"))
	if err := batch.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Store: store, Log: slog.New(slog.DiscardHandler), Lease: newLease(),
		Verify: func(coder.FenceToken) error { return nil }, Metrics: NewMetrics(prometheus.NewRegistry())}
	if _, err := Acquire(t.Context(), cfg); !errors.Is(err, ErrDataLost) {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	cfg.Verify = func(coder.FenceToken) error { return refused }
	if _, err := Acquire(t.Context(), cfg); !errors.Is(err, refused) {
		t.Fatal(err)
	}
	cfg.Store = newStore(t)
	held := acquire(t, cfg.Store, newLease()).Value()
	if _, err := Acquire(t.Context(), cfg); !errors.Is(err, refused) || inTable(t, cfg.Store) != held {
		t.Fatal("of a table that lost commits:", err, inTable(t, cfg.Store))
	}
}

func TestReadLeaseCountsFromTheStartOfACommit(t *testing.T) {
	store, c := newStore(t), &clock{Duration: time.Hour}
	lease := NewReadLease(false, false, c.now)
	h := acquire(t, store, lease)
	if lease.Valid() {
		t.Fatal("valid before a commit")
	}
	store.fault = func(commit func() error) error { c.Duration += leaseTime / 2; return commit() }
	if _, err := commit(t, h, 2, false); err != nil {
		t.Fatal(err)
	}
	if !lease.Valid() {
		t.Fatal("not valid after a commit")
	}
	if c.Duration += leaseTime / 2; lease.Valid() {
		t.Fatal("valid for longer than the lease after the commit began")
	}
	lease.Extend(c.Duration)
	if c.Duration = -1; lease.Valid() {
		t.Fatal("valid by a clock that cannot be read")
	}
	lease.Extend(c.Duration)
	if c.Duration = time.Hour; !lease.Valid() {
		t.Fatal("not valid")
	}
	if lease.End(); lease.Valid() || !lease.Ended() {
		t.Fatal("valid after its end")
	}
}

func TestReadLeaseOfAStoreOfOneProcess(t *testing.T) {
	if !NewReadLease(true, false, nil).Valid() {
		t.Error("an exclusive store needs no look at the fence row")
	}
	if checked := NewReadLease(true, true, (&clock{}).now); checked.Valid() {
		t.Error("every read is to be checked")
	} else if checked.Extend(0); checked.Valid() {
		t.Error("every read is to be checked, whatever was committed")
	}
}

// TestTakePausesWhileOutcomesAreUnknown: a disk that fails makes the outcome of each commit unknown.
func TestTakePausesWhileOutcomesAreUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		attempts := 0
		var fault func(func() error) error
		fault = func(func() error) error {
			if attempts++; attempts == 1000 {
				cancel() // it does not pause, so no time passes
			}
			store.fault = fault
			return sqlstore.ErrUncertain
		}
		store.fault = fault
		_, err := Acquire(ctx, Config{Store: store, Log: slog.New(slog.DiscardHandler), Lease: newLease(),
			Verify: func(coder.FenceToken) error { return nil }})
		require.ErrorIs(t, err, sqlstore.ErrUncertain)
		require.Less(t, attempts, 100)
	})
}
