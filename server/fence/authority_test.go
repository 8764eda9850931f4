package fence

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// leading is what an Authority needs to know of a leader.
type leading struct {
	store *faulty
	clock clock
	lease *ReadLease
	ended error
	a     *Authority
}

func newAuthority(t *testing.T, seen coder.FenceToken, await func(context.Context, int64) error) *leading {
	t.Helper()
	l := &leading{store: newStore(t), clock: clock{time.Minute}}
	l.lease = NewReadLease(false, false, l.clock.now)
	putRow(t, l.store, coder.FenceKey(), coder.EncodeFenceToken(seen))
	l.a = NewAuthority(AuthorityConfig{
		Store: l.store, Log: slog.New(slog.DiscardHandler), Lease: l.lease, Seen: seenAt(seen), Await: await,
		Term: seen.Term, End: func(cause error) error { l.ended = cause; return cause },
	})
	return l
}

func TestAuthorityChecksOnlyWithoutALease(t *testing.T) {
	l := newAuthority(t, coder.FenceToken{Sequence: 7, Term: 3, Revision: 5},
		func(context.Context, int64) error { return nil })
	defer l.a.Close(errors.New("closed"))
	for _, step := range []struct {
		pass   time.Duration
		checks int
	}{{0, 1}, {leaseTime - 1, 1}, {1, 2}} {
		l.clock.Duration += step.pass
		if err := l.a.VerifyLeader(t.Context()); err != nil {
			t.Fatal(err)
		}
		if int(l.store.reads.Load()) != step.checks {
			t.Errorf("%d checks, want %d", int(l.store.reads.Load()), step.checks)
		}
	}
}

// Another process may take the fence row at any time after the check has begun.
func TestReadLeaseCountsFromTheStartOfACheck(t *testing.T) {
	var l *leading
	l = newAuthority(t, coder.FenceToken{Sequence: 7, Term: 3, Revision: 5}, func(context.Context, int64) error {
		l.clock.Duration += leaseTime - 1 // the check took so long
		return nil
	})
	defer l.a.Close(errors.New("closed"))
	if err := l.a.VerifyLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !l.lease.Valid() {
		t.Error("the lease is over too early")
	}
	l.clock.Duration++
	if l.lease.Valid() {
		t.Error("the lease counts from the end of the check")
	}
}

func TestAuthorityEndsWithTheVerdictOnTheFenceRow(t *testing.T) {
	seen := coder.FenceToken{Sequence: 7, Term: 3, Revision: 5}
	for _, c := range []struct {
		name string
		row  []byte
		want error
	}{
		{"a later term", coder.EncodeFenceToken(coder.FenceToken{Sequence: 8, Term: 4, Revision: 5}), ErrDeposed},
		{"an older revision", coder.EncodeFenceToken(coder.FenceToken{Sequence: 6, Term: 3, Revision: 4}), ErrDataLost},
		{"not a fence row", []byte("?"), ErrDataLost},
		{"no row", nil, ErrDataLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newAuthority(t, seen, func(context.Context, int64) error { return nil })
			defer l.a.Close(errors.New("closed"))
			batch := l.store.BeginBatchWrite()
			if batch.Del(coder.FenceKey()); c.row != nil {
				batch = l.store.BeginBatchWrite()
				batch.Put(coder.FenceKey(), c.row)
			}
			if err := batch.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := l.a.VerifyLeader(t.Context()); !errors.Is(err, c.want) || !errors.Is(l.ended, c.want) {
				t.Errorf("VerifyLeader %v, ended because of %v; want %v", err, l.ended, c.want)
			}
			if l.lease.Valid() {
				t.Error("the lease was extended")
			}
		})
	}
}

// A leader that is cut off from the database answers nothing, and leads all the same.
func TestCheckThatFailsIsNoVerdict(t *testing.T) {
	l := newAuthority(t, coder.FenceToken{Sequence: 7, Term: 3, Revision: 5},
		func(context.Context, int64) error { return nil })
	defer l.a.Close(errors.New("closed"))
	if err := l.store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.a.VerifyLeader(t.Context()); !errors.Is(err, sqlstore.ErrClosed) || l.ended != nil || l.lease.Valid() {
		t.Errorf("%v, ended because of %v, lease valid %t", err, l.ended, l.lease.Valid())
	}
}

// The time of a check is not that of the request that waits for it.
func TestLookWithoutAnAnswerIsNotTheDeadlineOfItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAuthority(t, coder.FenceToken{Sequence: 7, Term: 3, Revision: 5}, func(ctx context.Context, _ int64) error {
			<-ctx.Done()
			return ctx.Err()
		})
		defer l.a.Close(errors.New("closed"))
		if err := l.a.VerifyLeader(t.Context()); !errors.Is(err, sqlstore.ErrUnavailable) {
			t.Errorf("VerifyLeader: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), ResolveTimeout/2)
		defer cancel()
		if err := l.a.VerifyLeader(ctx); !errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, sqlstore.ErrUnavailable) {
			t.Errorf("VerifyLeader of a caller with less time: %v", err)
		}
	})
}

// A commit may be in the table while its leader still waits for the answer.
func TestAuthorityConfirmsAfterTheTablesRevisionIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shown := make(chan struct{})
		l := newAuthority(t, coder.FenceToken{Sequence: 7, Term: 3, Revision: 5},
			func(ctx context.Context, revision int64) error {
				if revision != 6 {
					t.Errorf("awaits revision %d", revision)
				}
				<-shown
				return nil
			})
		defer l.a.Close(errors.New("closed"))
		putRow(t, l.store, coder.FenceKey(), coder.EncodeFenceToken(coder.FenceToken{Sequence: 8, Term: 3, Revision: 6}))
		var verified atomic.Bool
		go func() {
			if err := l.a.VerifyLeader(t.Context()); err != nil {
				t.Error(err)
			}
			verified.Store(true)
		}()
		synctest.Wait()
		if verified.Load() || l.lease.Valid() {
			t.Error("verified before the revision is shown")
		}
		close(shown)
		synctest.Wait()
		if !verified.Load() {
			t.Error("not verified")
		}
	})
}

// A leader without requests notices both that it was deposed, and what another member has seen.
func TestWatchReadsOnceASecondUntilTheLeadershipEnds(t *testing.T) {
	endsWith(t, func(_ *testing.T, l *leading) {
		time.Sleep(watchInterval)
	}, 1)
}

// PiggybackRead finds the same in what another statement has read, and Watch then need not read it.
func TestWatchReadsNothingThatWasPiggybacked(t *testing.T) {
	endsWith(t, func(t *testing.T, l *leading) {
		for range 2 {
			time.Sleep(watchInterval / 2)
			keys, found := l.a.PiggybackRead()
			rows, err := l.store.Store.MultiGet(t.Context(), keys)
			if err != nil {
				t.Error(err)
			}
			found(rows)
		}
	}, 0)
}

// endsWith lets a leader watch for ten intervals, in each of which it may send as many statements, and
// then for another one, which must end its leadership.
func endsWith(t *testing.T, interval func(*testing.T, *leading), statements int) {
	seen := coder.FenceToken{Sequence: 7, Term: 3, Revision: 5}
	lost := coder.DataLoss{Sequence: 9, Term: 3, Revision: 6, Member: 1}
	for name, c := range map[string]struct {
		key, value []byte
		want       error
	}{
		"deposed": {coder.FenceKey(),
			coder.EncodeFenceToken(coder.FenceToken{Sequence: 8, Term: 4, Revision: 5}), ErrDeposed},
		"the database lost data": {coder.FenceKey(),
			coder.EncodeFenceToken(coder.FenceToken{Sequence: 6, Term: 3, Revision: 4}), ErrDataLost},
		"another member has noticed loss": {coder.DataLossKey(), coder.EncodeDataLoss(lost), ErrDataLost},
		"not a data loss marker":          {coder.DataLossKey(), []byte("?"), ErrDataLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newAuthority(t, seen, func(context.Context, int64) error { return nil })
				defer l.a.Close(errors.New("closed"))
				ctx, cancel := context.WithCancel(t.Context())
				watched := make(chan struct{})
				go func() { defer close(watched); l.a.Watch(ctx) }()
				defer func() { cancel(); <-watched }()
				time.Sleep(time.Nanosecond) // not at the same time as Watch
				for range 10 {
					interval(t, l)
				}
				synctest.Wait()
				if int(l.store.reads.Load()) != 10*statements || l.ended != nil || l.lease.Valid() {
					t.Errorf("%d statements in ten intervals, ended because of %v, lease valid %t", int(l.store.reads.Load()),
						l.ended, l.lease.Valid())
				}
				putRow(t, l.store, c.key, c.value)
				interval(t, l)
				synctest.Wait()
				if !errors.Is(l.ended, c.want) {
					t.Errorf("ended because of %v, want %v", l.ended, c.want)
				}
			})
		})
	}
}
