package fence

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/steptrace"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// record lets h record its steps, and returns them.
func record(h *Holder) func() []steptrace.Step {
	var steps []steptrace.Step
	h.cfg.Trace = steptrace.New("n1", func() time.Duration { return 0 }, func(s steptrace.Step) {
		s.Node = ""
		steps = append(steps, s)
	})
	return func() []steptrace.Step { return steps }
}

func requireSteps(t *testing.T, got []steptrace.Step, want ...steptrace.Step) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("steps\n%+v\nwant\n%+v", got, want)
	}
}

func TestStepsOfACommit(t *testing.T) {
	store := newStore(t)
	h := take(t, store, newLease())
	steps, held := record(h), h.Value()
	next := h.Next(2)
	if _, err := commit(t, h, 2, false); err != nil {
		t.Fatal(err)
	}
	if err := h.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	requireSteps(t, steps(),
		steptrace.Step{Kind: steptrace.Commit, Token: next, Expected: held},
		steptrace.Step{Kind: steptrace.Answer, Result: steptrace.Written},
		steptrace.Step{Kind: steptrace.Resign, Token: next.Resigned(), Expected: next})
}

func TestStepsOfATakeover(t *testing.T) {
	store := newStore(t)
	first := take(t, store, newLease())
	steps := record(first)
	cfg := first.cfg
	store.fault = func(commit func() error) error { return errors.Join(sqlstore.ErrUncertain, commit()) }
	second, err := Acquire(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	one, two, three := first.Value(), coder.FenceToken{Sequence: 2, Term: 2, Revision: 1},
		coder.FenceToken{Sequence: 3, Term: 3, Revision: 1}
	if second.Value() != three {
		t.Errorf("holds %+v", second.Value())
	}
	requireSteps(t, steps(),
		steptrace.Step{Kind: steptrace.Take, Token: two, Expected: one},
		steptrace.Step{Kind: steptrace.Answer, Result: steptrace.Unknown},
		steptrace.Step{Kind: steptrace.Take, Token: three, Expected: two},
		steptrace.Step{Kind: steptrace.Answer, Result: steptrace.Written})
}

func TestStepsOfResolving(t *testing.T) {
	store := newStore(t)
	h := take(t, store, newLease())
	steps, held := record(h), h.Value()
	next := h.Next(2)
	store.fault = func(func() error) error { return sqlstore.ErrUncertain }
	if outcome, err := commit(t, h, 2, false); outcome != NotWritten || err != nil {
		t.Fatalf("%v, %v", outcome, err)
	}
	raised := held
	raised.Sequence++
	raised.Attempt++
	requireSteps(t, steps(),
		steptrace.Step{Kind: steptrace.Commit, Token: next, Expected: held},
		steptrace.Step{Kind: steptrace.Answer, Result: steptrace.Unknown},
		steptrace.Step{Kind: steptrace.Resolve, Token: held},
		steptrace.Step{Kind: steptrace.Raise, Token: raised, Expected: held},
		steptrace.Step{Kind: steptrace.Answer, Result: steptrace.Written})
}

func TestStepsOfLooks(t *testing.T) {
	store := newStore(t)
	lease := newLease()
	h := take(t, store, lease)
	steps, held := record(h), h.Value()
	seen := NewSeen(func() int64 { return 1 })
	seen.Observe(held)
	waited := false
	a := NewAuthority(AuthorityConfig{
		Store: store, Log: h.cfg.Log, Lease: lease, Seen: seen, Trace: h.cfg.Trace,
		Await: func(context.Context, int64) error {
			waited = len(steps()) == 0
			return nil
		},
		End: func(cause error) error { return cause },
	})
	defer a.Close(ErrDeposed)
	if err := a.VerifyLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !waited {
		t.Error("the look was recorded before the leader showed what it found")
	}
	successor := take(t, store, newLease())
	lease.Expire()
	if err := a.VerifyLeader(t.Context()); !errors.Is(err, ErrDeposed) {
		t.Fatal(err)
	}
	requireSteps(t, steps(),
		steptrace.Step{Kind: steptrace.Verify, Token: held},
		steptrace.Step{Kind: steptrace.Verify, Token: successor.Value()})
}
