package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/watch"
)

// replacedTable is a table that lost its newest revisions, which were written again.
type replacedTable struct {
	atLeader
	store sqlstore.Store
	// former led before; follower and idle have shown what it wrote. follower has it in
	// memory, and idle was opened after the last commit.
	former, follower, idle *Replica
	next                   *Replica // leads now
	resign                 func()
	resigned               chan error
}

// newReplaced loses two revisions, whose values were first, and lets after make others.
func newReplaced(t *testing.T, first string, after func(r *replacedTable)) *replacedTable {
	t.Helper()
	r := &replacedTable{store: newStore(t)}
	r.former, r.follower = r.join(t, r.store, "former"), r.join(t, r.store, "follower")
	resign, resigned := r.lead(t, r.former)
	mustTxn(t, r.former, put("k", "kept"))
	old := backup(t, r.store)
	mustTxn(t, r.former, put("k", first))
	mustTxn(t, r.former, put("k", first))
	mustCatchUp(t, r.follower)
	for _, b := range []*Replica{r.former, r.follower} {
		if _, err := b.Reader.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: all()}, false); err != nil {
			t.Fatal(err)
		}
	}
	r.idle = r.join(t, r.store, "idle")
	resign()
	<-resigned
	old.restore(t, r.store)
	after(r)
	return r
}

// continueWith lets another member write the lost revisions again, and one more.
func continueWith(t *testing.T, value string) func(*replacedTable) {
	return func(r *replacedTable) {
		r.next = r.join(t, r.store, "next")
		r.resign, r.resigned = r.lead(t, r.next)
		for range 2 {
			mustTxn(t, r.next, put("k", value))
		}
		mustTxn(t, r.next, put("other", value))
	}
}

// A member that did not look at the table between a loss and the commits that took the place of
// the lost ones stops serving, whatever it does next, and records the loss.
func TestReplacedRevisionsAreDataLoss(t *testing.T) {
	catchesUp := func(t *testing.T, _ *replacedTable, b *Replica) error { return catchUp(t, b) }
	leads := func(t *testing.T, r *replacedTable, b *Replica) error {
		r.resign()
		<-r.resigned
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		return b.Lead(ctx, func(int64) { cancel() })
	}
	follows := func(t *testing.T, r *replacedTable, b *Replica) error {
		return b.Divergence.Check(t.Context(), r.next.Status().Term, true)
	}
	reads := func(t *testing.T, _ *replacedTable, b *Replica) error {
		_, err := b.Reader.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: all()}, true)
		return err
	}
	for name, act := range map[string]func(t *testing.T, r *replacedTable, b *Replica) error{
		"reads the log": catchesUp, "leads": leads, "follows a feed": follows, "answers a linearizable read": reads,
	} {
		for role, member := range map[string]func(r *replacedTable) *Replica{
			"former leader":       func(r *replacedTable) *Replica { return r.former },
			"follower":            func(r *replacedTable) *Replica { return r.follower },
			"member just started": func(r *replacedTable) *Replica { return r.idle },
		} {
			t.Run(role+" "+name, func(t *testing.T) {
				r := newReplaced(t, "lost", continueWith(t, "replaced"))
				b := member(r)
				if err := act(t, r, b); !errors.Is(err, mvcc.ErrNotServing) || !errors.Is(err, fence.ErrDataLost) {
					t.Fatal(err)
				}
				awaitMarker(t, r.store)
				if err := fence.CheckDataLoss(t.Context(), r.store); !errors.Is(err, fence.ErrDataLost) {
					t.Errorf("other members see: %v", err)
				}
			})
		}
	}
}

// lossRecord returns the label of sqlbrain_data_lost that is 1, "" if none is.
func lossRecord(t *testing.T, b *Replica) (record string) {
	t.Helper()
	families, err := b.metrics.own.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == "sqlbrain_data_lost" && m.Gauge.GetValue() == 1 {
				record += m.Label[0].GetValue()
			}
		}
	}
	return record
}

// A loss that the content of the table refutes, or does not prove: the node knows of a revision that it has not shown,
// or its revisions were compacted.
func TestMetricSaysWhatBecameOfARecord(t *testing.T) {
	r := newReplaced(t, "same", continueWith(t, "same"))
	becomes := func(b *Replica, want string) {
		t.Helper()
		if got := lossRecord(t, b); got != "" {
			t.Errorf("before: %q", got)
		}
		b.Losses.Report(fence.ErrDataLost)
		eventually.True(t, "the record", func() bool { return b.Losses.Fate() > fence.LossPending })
		if got := lossRecord(t, b); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	becomes(r.follower, "refuted")
	newest := r.idle.seen.Token()
	newest.Sequence, newest.Revision = newest.Sequence+1, newest.Revision+1
	r.idle.seen.Observe(newest) // it has not shown that
	becomes(r.idle, "unproven")
	mustCompact(t, r.next, r.next.Revision(), true)
	becomes(r.former, "unproven")
}

// A term counts as compared once a look at the table succeeded, and is compared again if that is asked for.
func TestTermIsComparedUntilItSucceeds(t *testing.T) {
	r := newReplaced(t, "lost", continueWith(t, "replaced"))
	term := r.next.Status().Term
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.follower.Divergence.Check(ended, term, false); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := r.follower.Divergence.Check(t.Context(), term, false); !errors.Is(err, mvcc.ErrNotServing) {
		t.Errorf("after a look that failed: %v", err)
	}
	r.idle.Divergence.checkedIn(term)
	if err := r.idle.Divergence.Check(t.Context(), term, false); err != nil {
		t.Errorf("a term that was compared: %v", err)
	}
	r.idle.Divergence.Suspect()
	if err := r.idle.Divergence.Check(t.Context(), term, false); !errors.Is(err, mvcc.ErrNotServing) {
		t.Errorf("a term of which another leader may have taken the number: %v", err)
	}
	if err := r.idle.Divergence.Check(t.Context(), term, true); !errors.Is(err, mvcc.ErrNotServing) {
		t.Errorf("a term that is to be compared anew: %v", err)
	}
}

// laggingLog has no revisions from rev on for some reads, as a replica of the database that lags.
type laggingLog struct {
	sqlstore.Store
	rev   int64
	reads atomic.Int32
}

func (l *laggingLog) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	lo, hi := coder.LogBounds(l.rev, math.MaxInt64)
	if bytes.Equal(r.End, hi) && l.reads.Add(-1) >= 0 {
		r.End = lo
	}
	return l.Store.Iter(ctx, r)
}

// A log that ends before a revision that was visible stops only the member that read it. The loss is recorded if it is
// one, also if other members have written as much again and the member's second read lags, too.
func TestLogThatLagsProvesNoLoss(t *testing.T) {
	for name, lost := range map[string]bool{"nothing is lost": false, "the revision was replaced": true} {
		t.Run(name, func(t *testing.T) {
			r := replacedTable{store: newStore(t)}
			lag := &laggingLog{Store: r.store}
			former, follower := r.join(t, r.store, "former"), r.join(t, lag, "follower")
			resign, resigned := r.lead(t, former)
			mustTxn(t, former, put("k", "kept"))
			old := backup(t, r.store)
			mustTxn(t, former, put("k", "visible"))
			mustCatchUp(t, follower)
			resign()
			<-resigned
			want := fence.LossRefuted
			if lost {
				old.restore(t, r.store)
				want = fence.LossWritten
			}
			continueWith(t, "next")(&r)
			lag.rev = follower.Revision()
			lag.reads.Store(2)
			err := follower.Divergence.Check(t.Context(), r.next.Status().Term, true)
			require.ErrorIs(t, err, fence.ErrDataLost)
			eventually.True(t, "the record", func() bool { return follower.Losses.Fate() > fence.LossPending })
			require.Equal(t, want, follower.Losses.Fate())
			require.Equal(t, lost, errors.Is(fence.CheckDataLoss(t.Context(), r.store), fence.ErrDataLost))
		})
	}
}

// A member whose newest revisions cannot be compared, because they were compacted, discards what
// it has in memory.
func TestCompactedRevisionsAreForgotten(t *testing.T) {
	r := newReplaced(t, "lost", func(r *replacedTable) {
		continueWith(t, "replaced")(r)
		mustCompact(t, r.next, r.next.Revision(), true)
	})
	for _, b := range []*Replica{r.former, r.follower, r.idle} {
		mustCatchUp(t, b)
		res := mustRange(t, b, &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte("k")}})
		if got := string(res.Records[0].Value); got != "replaced" {
			t.Errorf("k is %s", got)
		}
	}
}

// A member that was frozen during the loss and the recovery does not record the loss once more.
func TestRecoveredLossIsNotRecordedAgain(t *testing.T) {
	for _, markCompacted := range []bool{true, false} {
		t.Run(fmt.Sprint("compacted ", markCompacted), func(t *testing.T) {
			r := newReplaced(t, "lost", func(r *replacedTable) {
				recoverTable(t, r.store, 10, markCompacted)
				continueWith(t, "recovered")(r)
			})
			err := catchUp(t, r.follower)
			if markCompacted {
				if err != nil {
					t.Fatal(err)
				}
				res := mustRange(t, r.follower, &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte("k")}})
				if got := string(res.Records[0].Value); got != "recovered" {
					t.Errorf("k is %s", got)
				}
			} else if !errors.Is(err, mvcc.ErrNotServing) || errors.Is(err, fence.ErrDataLost) {
				t.Error(err)
			}
			if _, recorded := marker(t, r.store); recorded {
				t.Error("the loss was recorded again")
			}
		})
	}
}

// The leader, a follower that reads the log, and one that gets events in another form have the
// same fingerprints of everything that a transaction can do.
func TestFingerprintsAgree(t *testing.T) {
	p, leader, follower := newLedPair(t, newStore(t))
	mustGrant(t, leader, 7, 3600)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 3 * remembered {
		txn := &mvcc.Txn{}
		for k := range 1 + rnd.IntN(3) {
			key := fmt.Appendf(nil, "%d-%d", k, rnd.IntN(3))
			op := mvcc.Op{Put: &mvcc.PutRequest{Key: key, Value: fmt.Append(nil, i), Lease: int64(7 * rnd.IntN(2))}}
			switch rnd.IntN(4) {
			case 0:
				op = mvcc.Op{Delete: &mvcc.DeleteRequest{KeyRange: mvcc.KeyRange{Key: key}}}
			case 1:
				op.Put.Value = nil
			}
			txn.Then = append(txn.Then, op)
		}
		mustTxn(t, leader, txn)
		if i%5 == 0 {
			mustCatchUp(t, follower)
		}
	}
	mustCatchUp(t, follower)
	if n := len(leader.Divergence.list()); n != remembered {
		t.Errorf("%d revisions are remembered", n)
	}
	for _, b := range p.nodes {
		if err := b.Divergence.Check(t.Context(), 1, true); err != nil {
			t.Error(err)
		}
	}
}

// Events that differ in anything have other fingerprints, and those of a revision do not depend on the others.
func TestFingerprintsDiffer(t *testing.T) {
	event := func(change func(*watch.Event)) *watch.Event {
		e := &watch.Event{Type: watch.Put, PrevRevision: 3, Record: &coder.Record{
			Key: []byte("key"), Value: []byte("value"), Lease: 4, CreateRevision: 2, ModRevision: 5, Version: 3,
		}}
		change(e)
		return e
	}
	seen := make(map[uint64]string)
	for name, change := range map[string]func(*watch.Event){
		"none":            func(*watch.Event) {},
		"deletion":        func(e *watch.Event) { e.Type = watch.Delete },
		"previous":        func(e *watch.Event) { e.PrevRevision++ },
		"key":             func(e *watch.Event) { e.Record.Key = []byte("yek") },
		"value":           func(e *watch.Event) { e.Record.Value = []byte("eulav") },
		"lease":           func(e *watch.Event) { e.Record.Lease++ },
		"create revision": func(e *watch.Event) { e.Record.CreateRevision-- },
		"version":         func(e *watch.Event) { e.Record.Version-- },
	} {
		prints := fingerprints([]*watch.Event{event(change)})
		if len(prints) != 1 || prints[0].revision != 5 {
			t.Fatalf("%s: %v", name, prints)
		}
		if other, known := seen[prints[0].sum]; known {
			t.Errorf("events that differ in %s and %s have one fingerprint", name, other)
		}
		seen[prints[0].sum] = name
	}
	first, second := event(func(*watch.Event) {}), event(func(e *watch.Event) { e.Record.ModRevision = 6 })
	if both, alone := fingerprints([]*watch.Event{first, second}),
		fingerprints([]*watch.Event{second}); both[1] != alone[0] {
		t.Errorf("the fingerprint of revision 6 is %v after revision 5, and %v alone", both[1], alone[0])
	}
}
