package fence

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func putRow(t *testing.T, store sqlstore.Store, key, value []byte) {
	t.Helper()
	batch := store.BeginBatchWrite()
	batch.Put(key, value)
	if err := batch.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func marker(t *testing.T, store sqlstore.Store) coder.DataLoss {
	t.Helper()
	lost, _, err := LoadDataLoss(t.Context(), store)
	if err != nil || lost == nil {
		t.Fatal(lost, err)
	}
	return *lost
}

func seenAt(token coder.FenceToken) *Seen {
	s := NewSeen(func() int64 { return token.Revision })
	s.Observe(token)
	return s
}

// newRecorder returns the recorder of member 8, which has seen a token and shown no revision.
func newRecorder(store sqlstore.Store, seen coder.FenceToken) *LossRecorder {
	return NewLossRecorder(store, slog.New(slog.DiscardHandler), seenAt(seen), 8,
		func(context.Context) error { return ErrUnproven })
}

func TestMarkerKeepsTheNewestOfAllMembers(t *testing.T) {
	store := newStore(t)
	seen := coder.FenceToken{Sequence: 7, Term: 3, Revision: 5}
	r := newRecorder(store, seen)
	for _, c := range []struct{ known, want coder.DataLoss }{
		{coder.DataLoss{Sequence: 1, Term: 9, Revision: 1, Member: 7},
			coder.DataLoss{Sequence: 7, Term: 9, Revision: 5, Member: 8}},
		{coder.DataLoss{Sequence: 99, Term: 9, Revision: 99, Member: 7},
			coder.DataLoss{Sequence: 99, Term: 9, Revision: 99, Member: 7}},
	} {
		putRow(t, store, coder.DataLossKey(), coder.EncodeDataLoss(c.known))
		if err := r.record(t.Context(), recordTimeout); err != nil {
			t.Fatal(err)
		}
		got := marker(t, store)
		if got.At = 0; got != c.want {
			t.Errorf("%+v and %+v make %+v", c.known, seen, got)
		}
	}
}

func TestUnreadableMarkerIsALossAndIsReplaced(t *testing.T) {
	store := newStore(t)
	putRow(t, store, coder.DataLossKey(), []byte("?"))
	if err := CheckDataLoss(t.Context(), store); !errors.Is(err, ErrDataLost) {
		t.Errorf("CheckDataLoss: %v", err)
	}
	r := newRecorder(store, coder.FenceToken{Sequence: 7, Term: 3, Revision: 5})
	if err := r.record(t.Context(), recordTimeout); err != nil {
		t.Fatal(err)
	}
	if got := marker(t, store); got.Revision != 5 {
		t.Errorf("%+v", got)
	}
}

// TestLossStaysRecordedWhenTheFenceRowGrows writes more than was lost after the loss was recorded.
func TestLossStaysRecordedWhenTheFenceRowGrows(t *testing.T) {
	store := newStore(t)
	putRow(t, store, coder.FenceKey(), coder.EncodeFenceToken(coder.FenceToken{Sequence: 3, Term: 2, Revision: 3}))
	r := newRecorder(store, coder.FenceToken{Sequence: 7, Term: 1, Revision: 5})
	if err := r.record(t.Context(), recordTimeout); err != nil {
		t.Fatal(err)
	}
	// The proof changes the row, so that databases which accept writes on several servers compare it too. Its sequence
	// stays: members notice the loss by that as well.
	if cur, _, err := readToken(t.Context(), store); err != nil ||
		cur != (coder.FenceToken{Sequence: 3, Term: 2, Revision: 3, Attempt: 1}) {
		t.Errorf("the fence row is %+v, %v", cur, err)
	}
	putRow(t, store, coder.FenceKey(), coder.EncodeFenceToken(coder.FenceToken{Sequence: 500, Term: 2, Revision: 600}))
	if err := CheckDataLoss(t.Context(), store); !errors.Is(err, ErrDataLost) {
		t.Errorf("CheckDataLoss: %v", err)
	}
}

// TestLossThatAReplicaSuggestsHasNoEffect: the commit finds that the database has lost nothing.
func TestLossThatAReplicaSuggestsHasNoEffect(t *testing.T) {
	store := newStore(t)
	store.row = func(context.Context, func() ([]byte, error)) ([]byte, error) {
		store.row = nil // once
		return coder.EncodeFenceToken(coder.FenceToken{Sequence: 3, Term: 1, Revision: 3}), nil
	}
	putRow(t, store, coder.FenceKey(), coder.EncodeFenceToken(coder.FenceToken{Sequence: 7, Term: 1, Revision: 5}))
	r := newRecorder(store, coder.FenceToken{Sequence: 7, Term: 1, Revision: 5})
	if err := r.record(t.Context(), recordTimeout); err != nil {
		t.Fatal(err)
	}
	if err := CheckDataLoss(t.Context(), store); err != nil || store.row != nil {
		t.Errorf("CheckDataLoss: %v", err)
	}
}

// A report just before the end of the process is still written.
func TestReportedLossIsWrittenAlthoughRunEnds(t *testing.T) {
	store := newStore(t)
	r := newRecorder(store, coder.FenceToken{Sequence: 7, Term: 3, Revision: 5})
	r.Report(sqlstore.ErrUnavailable) // no loss
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r.Run(ended)
	if lost, _, err := LoadDataLoss(t.Context(), store); lost != nil || err != nil {
		t.Fatalf("%+v, %v without a loss", lost, err)
	}
	r.Report(ErrDataLost)
	r.Report(ErrDataLost)
	r.Run(ended)
	if got := marker(t, store); got.Sequence != 7 || got.Term != 3 || got.Revision != 5 || got.Member != 8 {
		t.Errorf("%+v", got)
	}
}

// TestOutgrownLossIsJudgedByContent: the fence row has grown as long again before the process could write.
func TestOutgrownLossIsJudgedByContent(t *testing.T) {
	away := errors.New("the database is away")
	for name, c := range map[string]struct {
		compared  error
		missing   bool // the table ends before the content
		recovered bool
		want      LossFate
		err       error
	}{
		"other content":           {compared: ErrDataLost, want: LossWritten},
		"the same content":        {want: LossRefuted},
		"no content":              {compared: ErrUnproven, want: LossUnproven},
		"a log that lags":         {compared: ErrDataLost, missing: true, want: LossPending, err: ErrDataLost},
		"the database is away":    {compared: away, want: LossPending, err: away},
		"the table was recovered": {compared: ErrDataLost, recovered: true, want: LossRefuted},
	} {
		t.Run(name, func(t *testing.T) {
			store, seen := newStore(t), seenAt(coder.FenceToken{Sequence: 7, Term: 1, Revision: 5})
			token := coder.FenceToken{Sequence: 20, Term: 2, Revision: 9}
			if c.recovered {
				token.Sequence, token.Term = token.Sequence+RecoveredSequences, token.Term+RecoveredTerms
			}
			putRow(t, store, coder.FenceKey(), coder.EncodeFenceToken(token))
			r := NewLossRecorder(store, slog.New(slog.DiscardHandler), seen, 8, func(context.Context) error {
				if errors.Is(c.compared, ErrDataLost) && !c.missing {
					seen.ObserveLoss()
				}
				return c.compared
			})
			r.Report(ErrDataLost)
			if err := r.record(t.Context(), recordTimeout); !errors.Is(err, c.err) {
				t.Fatal(err)
			}
			if got := r.Fate(); got != c.want {
				t.Errorf("fate %d, want %d", got, c.want)
			}
			token.Sequence, token.Revision = token.Sequence+500, 600
			putRow(t, store, coder.FenceKey(), coder.EncodeFenceToken(token))
			if err := CheckDataLoss(t.Context(), store); errors.Is(err, ErrDataLost) != (c.want == LossWritten) {
				t.Errorf("CheckDataLoss: %v", err)
			}
		})
	}
}

// TestProofByContentNeedsNoQuietLeader: it does not depend on the fence row.
func TestProofByContentNeedsNoQuietLeader(t *testing.T) {
	store, seen := newStore(t), seenAt(coder.FenceToken{Sequence: 7, Term: 1, Revision: 5})
	putRow(t, store, coder.FenceKey(), coder.EncodeFenceToken(coder.FenceToken{Sequence: 20, Term: 2, Revision: 9}))
	store.row = func(_ context.Context, read func() ([]byte, error)) ([]byte, error) { // a leader commits after each read
		raw, err := read()
		token := inTable(t, store.Store)
		token.Sequence++
		putRow(t, store, coder.FenceKey(), coder.EncodeFenceToken(token))
		return raw, err
	}
	r := NewLossRecorder(store, slog.New(slog.DiscardHandler), seen, 8, func(context.Context) error {
		seen.ObserveLoss()
		return ErrDataLost
	})
	if err := r.record(t.Context(), 200*time.Millisecond); err != nil || r.Fate() != LossWritten {
		t.Error(err, r.Fate())
	}
}

// TestLossWithoutAProofIsRecordedAgain: what is written without an answer is not all that is to be written.
func TestLossWithoutAProofIsRecordedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		store.row = func(ctx context.Context, _ func() ([]byte, error)) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		putRow(t, store, coder.FenceKey(), coder.EncodeFenceToken(coder.FenceToken{Sequence: 3, Term: 1, Revision: 3}))
		r := newRecorder(store, coder.FenceToken{Sequence: 7, Term: 1, Revision: 5})
		for range 2 {
			if err := r.record(t.Context(), 20*time.Millisecond); err == nil {
				t.Fatal("it counts as written")
			}
			if got := marker(t, store); got.Revision != 5 {
				t.Fatalf("%+v", got)
			}
		}
		store.row = nil
		if err := r.record(t.Context(), recordTimeout); err != nil || r.Fate() != LossWritten {
			t.Fatal(err, r.Fate())
		}
		putRow(t, store, coder.FenceKey(), coder.EncodeFenceToken(coder.FenceToken{Sequence: 500, Term: 2, Revision: 600}))
		if err := CheckDataLoss(t.Context(), store); !errors.Is(err, ErrDataLost) {
			t.Errorf("CheckDataLoss: %v", err)
		}
	})
}

// TestLossIsRecordedOnceTheDatabaseTakesWrites: the process keeps trying, and is done then.
func TestLossIsRecordedOnceTheDatabaseTakesWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, commits := newStore(t), 0
		store.always(func(commit func() error) error {
			if commits++; commits <= 10 {
				return sqlstore.ErrUnavailable
			}
			return commit()
		})
		r := newRecorder(store, coder.FenceToken{Sequence: 7, Term: 3, Revision: 5})
		r.Report(ErrDataLost)
		if r.Fate() != LossPending {
			t.Errorf("fate %d", r.Fate())
		}
		r.Run(t.Context())
		if got := marker(t, store); r.Fate() != LossWritten || got.Revision != 5 {
			t.Errorf("fate %d, %+v", r.Fate(), got)
		}
	})
}

// TestUnknownOutcomeOfALossIsLookedFor after a pause, and the loss counts as written once the row shows it.
func TestUnknownOutcomeOfALossIsLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, commits := newStore(t), 0
		store.always(func(commit func() error) error {
			if commits++; commits == 3 { // it takes effect
				if err := commit(); err != nil {
					return err
				}
			}
			if commits > 100 {
				return errors.New("too many commits")
			}
			return sqlstore.ErrUncertain
		})
		r := newRecorder(store, coder.FenceToken{Sequence: 7, Term: 3, Revision: 5})
		if err := r.record(t.Context(), recordTimeout); err != nil || r.Fate() != LossWritten || commits != 3 {
			t.Fatal(err, r.Fate(), commits)
		}
		r.seen.Observe(coder.FenceToken{Sequence: 8, Term: 3, Revision: 6})
		began := time.Now()
		if err := r.record(t.Context(), recordTimeout); !errors.Is(err, sqlstore.ErrUncertain) ||
			time.Since(began) != recordTimeout {
			t.Errorf("%v after %s and %d commits", err, time.Since(began), commits)
		}
	})
}

// TestLossIsToldWhileItCannotBeWritten: another process writes it, and this one is done.
func TestLossIsToldWhileItCannotBeWritten(t *testing.T) {
	store := newStore(t)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	seen := coder.FenceToken{Sequence: 7, Term: 3, Revision: 5}
	r := newRecorder(store, seen)
	if err := r.recordOrTell(t.Context()); err == nil {
		t.Fatal("it was written")
	}
	var told []coder.DataLoss
	var refusal error
	r.Tell(func(_ context.Context, l coder.DataLoss) error {
		told = append(told, l)
		return refusal
	})
	refusal = ErrUnproven
	if err := r.recordOrTell(t.Context()); !errors.Is(err, refusal) || r.Fate() == LossWritten {
		t.Errorf("nobody has written it: %v, fate %d", err, r.Fate())
	}
	refusal = nil
	if err := r.recordOrTell(t.Context()); err != nil || r.Fate() != LossWritten {
		t.Errorf("%v, fate %d", err, r.Fate())
	}
	want := coder.DataLoss{Sequence: 7, Term: 3, Revision: 5, Member: 8}
	if len(told) != 2 || told[0] != want || told[1] != want {
		t.Errorf("told %+v", told)
	}
}

// TestLossOfAnotherProcess is about a report of a process that cannot write.
func TestLossOfAnotherProcess(t *testing.T) {
	now := coder.FenceToken{Sequence: 20, Term: 2, Revision: 9}
	for name, c := range map[string]struct {
		lost    coder.DataLoss
		written bool
	}{
		"the fence row is older": {coder.DataLoss{Sequence: 21, Term: 1, Revision: 9}, true},
		"the process has compared": {coder.DataLoss{Sequence: 7 + missingSequences, Term: 1, Revision: 5},
			true},
		"the fence row has grown":                   {coder.DataLoss{Sequence: 7, Term: 1, Revision: 5}, false},
		"a sequence that no recovery could surpass": {coder.DataLoss{Sequence: math.MaxInt64, Term: 1, Revision: 5}, false},
		"a revision that no recovery could surpass": {coder.DataLoss{Sequence: 21, Term: 1, Revision: math.MaxInt64},
			false},
		"a term that no recovery could surpass": {coder.DataLoss{Sequence: 21, Term: math.MaxInt64, Revision: 5},
			false},
		"a sequence that no leader writes": {coder.DataLoss{Sequence: 0, Term: 1, Revision: 50}, false},
		"a sequence that no process can have started": {coder.DataLoss{Sequence: math.MinInt64, Term: 1, Revision: 50},
			false},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t)
			putRow(t, store, coder.FenceKey(), coder.EncodeFenceToken(now))
			c.lost.Member = 9
			err := RecordFor(t.Context(), store, slog.New(slog.DiscardHandler), seenAt(now), c.lost)
			if c.written && err != nil || !c.written && !errors.Is(err, ErrUnproven) {
				t.Fatal(err)
			}
			if c.written && marker(t, store).Member != 9 {
				t.Error("it is not in the name of the other")
			}
			putRow(t, store, coder.FenceKey(), coder.EncodeFenceToken(coder.FenceToken{Sequence: 500, Term: 2, Revision: 600}))
			if err := CheckDataLoss(t.Context(), store); errors.Is(err, ErrDataLost) != c.written {
				t.Errorf("CheckDataLoss: %v", err)
			}
		})
	}
}
