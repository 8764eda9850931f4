package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func TestGrantRaisesTheTTLToTheMinimum(t *testing.T) {
	l := lead(t, newStore(t))
	for ttl, want := range map[int64]int64{-1: 2, 0: 2, 1: 2, 3: 3, MaxTTL: MaxTTL} {
		st, err := l.lessor.Grant(t.Context(), auth.System, 0, ttl)
		require.NoError(t, err)
		require.Equal(t, want, st.GrantedTTL)
		require.Positive(t, st.ID)
	}
	l.grant(5, 10)
	_, err := l.lessor.Grant(t.Context(), auth.System, 5, 10)
	require.ErrorIs(t, err, mvcc.ErrLeaseExists)
	_, err = l.lessor.Grant(t.Context(), auth.System, 0, MaxTTL+1)
	require.ErrorIs(t, err, mvcc.ErrLeaseTTLTooLarge)
	require.Equal(t, 6, l.lessor.Len())
	ids, err := l.lessor.IDs(t.Context(), auth.System)
	require.NoError(t, err)
	require.Len(t, ids, 6)
	require.EqualValues(t, 5, ids[4], "the order is not that of the ends")
}

func TestLeaseExpiresWithItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lead(t, newStore(t))
		id := l.grant(0, 10)
		l.put("a", id)
		l.put("other", 0)
		for range 3 {
			time.Sleep(10*time.Second - time.Millisecond)
			ttl, err := l.keepAlive(id)
			require.NoError(t, err)
			require.EqualValues(t, 10, ttl)
		}
		time.Sleep(10*time.Second - time.Millisecond)
		require.Equal(t, "a other", l.keys())
		time.Sleep(time.Millisecond)
		_, err := l.keepAlive(id) // waits for the end
		require.ErrorIs(t, err, mvcc.ErrLeaseNotFound)
		require.Equal(t, "other", l.keys())
		require.EqualValues(t, -1, l.ttl(id))
	})
}

// TestNoLeaseEndsEarly checks on random histories of grants, renewals, crashes and handovers
// that a lease lives for its TTL after each grant and each acknowledged renewal.
func TestNoLeaseEndsEarly(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			store := newFaulty(t)
			store.onCommit(func(ctx context.Context, b sqlstore.BatchWrite) error {
				err := b.Commit(ctx)
				time.Sleep(50 * time.Millisecond)
				return err
			})
			const ttl, leases = 100, 10
			l := lead(t, store)
			promised := make(map[int64]time.Time) // a lease must not end before
			keep := func(id int64) {
				asked := time.Now()
				if _, err := l.keepAlive(id); err == nil {
					promised[id] = asked.Add(ttl * time.Second)
				} else {
					require.ErrorIs(t, err, mvcc.ErrLeaseNotFound)
					require.False(t, time.Now().Before(promised[id]), "lease %d ended %v early", id, time.Until(promised[id]))
					delete(promised, id)
				}
			}
			for range 100 {
				time.Sleep(time.Duration(rnd.Int64N(int64(ttl * time.Second / 4))))
				id := rnd.Int64N(leases) + 1
				switch _, exists := promised[id]; {
				case rnd.IntN(5) == 0:
					l.crash()
					l = lead(t, store)
				case rnd.IntN(5) == 0:
					l.handOver()
					l = lead(t, store)
				case exists:
					keep(id)
				default:
					l.grant(id, ttl)
					promised[id] = time.Now().Add(ttl * time.Second)
				}
				for id, end := range promised {
					if l.ttl(id) < 0 {
						require.False(t, time.Now().Before(end), "lease %d ended %v early", id, time.Until(end))
						delete(promised, id)
					}
				}
			}
		})
	}
}

func TestUnconfirmedAnswersAreErrors(t *testing.T) {
	l := lead(t, newStore(t))
	id := l.grant(0, 1000)
	_ = l.End(errors.New("made up"))
	_, err := l.keepAlive(id)
	require.ErrorIs(t, err, mvcc.ErrNotLeader)
	_, err = l.lessor.TimeToLive(t.Context(), auth.System, id, false)
	require.ErrorIs(t, err, mvcc.ErrNotLeader)
	_, err = l.lessor.IDs(t.Context(), auth.System)
	require.ErrorIs(t, err, mvcc.ErrNotLeader)
}

// verifying is a leader that calls before when it is asked whether it leads.
type verifying struct {
	Leader
	before func()
}

func (v verifying) VerifyLeader(ctx context.Context) error {
	v.before()
	return v.Leader.VerifyLeader(ctx)
}

// If another leader takes over after the check, it starts its clocks after the renewal.
func TestRenewalComesBeforeLeadershipCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			l       *testLeader
			renewed coder.Lease
		)
		l = lead(t, newStore(t), func(c *Config) {
			c.Leader = verifying{c.Leader, func() { renewed, _ = l.lessor.Lease(5) }}
		})
		l.grant(5, 100)
		time.Sleep(10 * time.Second)
		_, err := l.keepAlive(5)
		require.NoError(t, err)
		require.EqualValues(t, 100, renewed.Remaining)
	})
}

// TestLeaderChangeProlongsLeaseByHalf checks the bound in the package comment, with crashes just before a checkpoint
// and before the end of the lease.
func TestLeaderChangeProlongsLeaseByHalf(t *testing.T) {
	for _, seconds := range []int64{2, 3, 4, 5, 7, 10, 60} {
		ttl := time.Duration(seconds) * time.Second
		for _, crash := range []time.Duration{ttl / 2, ttl} {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				l := lead(t, store)
				id := l.grant(0, seconds)
				began := time.Now()
				time.Sleep(crash - time.Millisecond)
				l.crash()
				l = lead(t, store)
				for l.ttl(id) >= 0 {
					time.Sleep(time.Millisecond)
				}
				require.LessOrEqual(t, time.Since(began)-ttl, max(ttl/2, 3*time.Second)+timing.LeaseGrace, "TTL %v", ttl)
			})
		}
	}
}

func TestRemainingTimeSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		l := lead(t, store)
		id := l.grant(0, 1000)
		time.Sleep(400 * time.Second)
		l.handOver()
		l = lead(t, store)
		require.EqualValues(t, 600+timing.LeaseGrace/time.Second, l.ttl(id))
		ttl, err := l.keepAlive(id)
		require.NoError(t, err)
		require.EqualValues(t, 1000, ttl)
		// The table held less, so the renewal is durable: a crash must not shorten the lease.
		row, _ := leaseRow(t, store, id)
		require.Zero(t, row.Remaining, "after the renewal the table holds %+v", row)
		l.crash()
	})
}

// TestHandoverRoundsRemainingTimeUp checks that no change of leader makes a lease shorter.
func TestHandoverRoundsRemainingTimeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		l := lead(t, store)
		id := l.grant(0, 1000)
		left := 1000 * time.Second
		for range 3 {
			time.Sleep(10*time.Second + time.Millisecond)
			left -= 10*time.Second + time.Millisecond
			l.handOver()
			row, _ := leaseRow(t, store, id)
			got := time.Duration(row.Remaining) * time.Second
			require.GreaterOrEqual(t, got, left)
			require.Less(t, got, left+time.Second)
			l = lead(t, store)
			left = got + timing.LeaseGrace
		}
	})
}

// TestClocksDoNotRunBeforeStart checks that clocks do not start when the leader reads the
// leases, because its predecessor may acknowledge renewals until the leader serves.
func TestClocksDoNotRunBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		l := lead(t, store)
		id := l.grant(0, 10)
		l.crash()
		next := New(l.lessor.cfg)
		require.NoError(t, next.Load(t.Context(), store, l.pipeline))
		time.Sleep(time.Minute)
		expired, _, _ := next.popDue(time.Now())
		require.Empty(t, expired)
		next.Start()
		require.EqualValues(t, 10+timing.LeaseGrace/time.Second, next.status(id).TTL)
	})
}

func TestCheckpointsOfManyLeasesAreSeveralCommits(t *testing.T) {
	const n = 2*checkpointBatch + 1
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty(t)
		l := lead(t, store)
		for i := range int64(n) {
			l.grant(i+1, 1000)
		}
		time.Sleep(400 * time.Second)
		var changes []int
		store.onCommit(func(ctx context.Context, b sqlstore.BatchWrite) error {
			changes = append(changes, b.Len())
			return b.Commit(ctx)
		})
		require.NoError(t, l.lessor.HandOver(t.Context()))
		require.Len(t, changes, 3)
		require.LessOrEqual(t, slices.Max(changes), checkpointBatch+2)
		for i := range int64(n) {
			row, _ := leaseRow(t, store, i+1)
			require.EqualValues(t, 600, row.Remaining, "lease %d", i+1)
		}
	})

	l := New(Config{})
	start := time.Now()
	for i := range int64(n) {
		l.add(coder.Lease{ID: i + 1, TTL: 100}, start)
	}
	for _, want := range []int{checkpointBatch, checkpointBatch, 1} {
		_, due, next := l.popDue(start.Add(50 * time.Second))
		require.Len(t, due, want)
		require.Equal(t, want == 1, next > 0)
	}
}

func TestRemainingTimeIsWholeSeconds(t *testing.T) {
	now := time.Now()
	for left, want := range map[time.Duration]int64{
		math.MaxInt64: MaxTTL, MaxTTL * time.Second: MaxTTL, (MaxTTL-1)*time.Second + 1: MaxTTL,
		time.Second + 1: 2, time.Second: 1, time.Second - 1: 1, 0: 1, -time.Minute: 1,
	} {
		le := &lease{ttl: MaxTTL, expiry: now.Add(left)}
		require.Equal(t, want, le.remaining(now), "%v before its end", left)
	}
}

// TestRenewalDuringHandoverIsRefused checks that a renewal that the last checkpoints may not
// include is refused, because the next leader would not know of it.
func TestRenewalDuringHandoverIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty(t)
		l := lead(t, store)
		id := l.grant(0, 1000)
		time.Sleep(400 * time.Second)
		release := store.holdCommits()
		go l.put("k", 0)
		synctest.Wait() // for the commit
		handedOver := make(chan error)
		go func() { handedOver <- l.lessor.HandOver(t.Context()) }()
		synctest.Wait()
		_, err := l.keepAlive(id)
		require.ErrorIs(t, err, mvcc.ErrNotLeader)
		release()
		require.NoError(t, <-handedOver)
		_, err = l.keepAlive(id)
		require.ErrorIs(t, err, mvcc.ErrNotLeader)
		row, _ := leaseRow(t, store, id)
		require.EqualValues(t, 600, row.Remaining)
	})
}

// TestCheckpointKeepsLaterRenewal renews a lease after its checkpoint is due and before the
// checkpoint is committed.
func TestCheckpointKeepsLaterRenewal(t *testing.T) {
	store := newStore(t)
	l := lead(t, store)
	id := l.grant(0, 1000)
	_, due, _ := l.lessor.popDue(time.Now().Add(500 * time.Second))
	require.Len(t, due, 1)
	_, err := l.keepAlive(id)
	require.NoError(t, err)
	require.NoError(t, l.lessor.checkpoint(t.Context(), due))
	row, _ := leaseRow(t, store, id)
	require.True(t, row.Remaining == 0 || row.Remaining > 990, "renewed to 1000 s, the table holds %+v", row)
}

// TestRenewalWaitsForCommitAfterCheckpoint checks that a renewal during the commit of a
// checkpoint is acknowledged only when the table holds the full time again.
func TestRenewalWaitsForCommitAfterCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty(t)
		l := lead(t, store)
		id := l.grant(0, 1000)
		time.Sleep(400 * time.Second)
		release := store.holdCommits()
		done := make(chan error)
		go func() { done <- l.lessor.checkpoint(t.Context(), []int64{id}) }()
		synctest.Wait()
		row, _ := leaseRow(t, store, id)
		require.EqualValues(t, 600, row.Remaining)
		renewed := make(chan error, 1)
		go func() {
			_, err := l.keepAlive(id)
			if row, _ := leaseRow(t, store, id); err == nil && row.Remaining != 0 {
				err = fmt.Errorf("acknowledged, but the table holds %d s", row.Remaining)
			}
			renewed <- err
		}()
		synctest.Wait()
		require.Empty(t, renewed, "the renewal ended before the checkpoint")
		release()
		require.NoError(t, <-done)
		require.NoError(t, <-renewed)
	})
}

// TestTableHoldsAtLeastPersistedTime executes checkpoints and renewals in every order, in one
// batch and in two, with commits that succeed and fail.
func TestTableHoldsAtLeastPersistedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty(t)
		l := idle(t, store)
		l.together(&grantCommand{l: l.lessor, row: coder.Lease{ID: 7, TTL: 1000, Policy: true}})
		checkpoint := func() write.Command { return &checkpointCommand{l: l.lessor, ids: []int64{7}} }
		renewal := func() write.Command { return &checkpointCommand{l: l.lessor, ids: []int64{7}, renewed: true} }
		check := func(what string, want int64) {
			t.Helper()
			row, _ := leaseRow(t, store, 7)
			if row.TTL != 1000 || !row.Policy || (row.Remaining == 0) != (want == 1000) {
				t.Errorf("%s: the table holds %+v, want %d s", what, row, want)
			}
			if p := l.lessor.leases[7].persisted; p > want || row.Remaining != 0 && p > row.Remaining {
				t.Errorf("%s: %d s counted as persisted, the table holds %+v", what, p, row)
			}
		}
		time.Sleep(400 * time.Second)
		l.together(renewal(), checkpoint())
		check("renewal, checkpoint", 1000)
		l.together(checkpoint())
		check("checkpoint", 600)
		l.together(checkpoint(), renewal())
		check("checkpoint, renewal", 1000)
		store.onCommit(func(context.Context, sqlstore.BatchWrite) error { return sqlstore.ErrTooLarge })
		require.ErrorIs(t, l.together(checkpoint())[0], mvcc.ErrTooLarge)
		store.onCommit(nil)
		check("a checkpoint that failed", 1000)
		_, persist, err := l.lessor.renew(7)
		require.NoError(t, err)
		require.True(t, persist, "after a failed checkpoint a renewal relies on the table")
		l.together(l.revokeCommand(7), &grantCommand{l: l.lessor, row: coder.Lease{ID: 7, TTL: 20}}, checkpoint(), renewal())
		row, _ := leaseRow(t, store, 7)
		require.Equal(t, coder.Lease{ID: 7, TTL: 20}, row, "revoked and granted again in one batch")
		l.together(l.revokeCommand(7), checkpoint(), renewal())
		_, exists := leaseRow(t, store, 7)
		require.False(t, exists, "a checkpoint restored the row of a revoked lease")
	})
}

func TestCheckpointIsDueAtHalfOfPersistedTime(t *testing.T) {
	l := New(Config{})
	start := time.Now()
	l.add(coder.Lease{ID: 1, TTL: 100}, start)
	expired, checkpoints, next := l.popDue(start.Add(49 * time.Second))
	require.Empty(t, expired)
	require.Empty(t, checkpoints)
	require.LessOrEqual(t, next, time.Second)
	_, checkpoints, next = l.popDue(start.Add(50 * time.Second))
	require.Len(t, checkpoints, 1)
	require.EqualValues(t, 50, l.leases[1].persisted)
	require.Equal(t, 25*time.Second, next)
	expired, _, _ = l.popDue(start.Add(100 * time.Second))
	require.Len(t, expired, 1)
}

// TestLeaseCommandsReturnTheirRevision checks that commands return the revision at which they
// took effect, not the one of their batch.
func TestLeaseCommandsReturnTheirRevision(t *testing.T) {
	l := idle(t, newStore(t))
	grant := &grantCommand{l: l.lessor, row: coder.Lease{ID: 7, TTL: 60}}
	grantEmpty := &grantCommand{l: l.lessor, row: coder.Lease{ID: 8, TTL: 60}}
	revoke, revokeEmpty := l.revokeCommand(7), l.revokeCommand(8)
	put := func(lease int64) write.Command {
		return write.NewTxnCommand(putLeased(fmt.Sprint("key of ", lease), lease))
	}
	for i, err := range l.together(put(0), grant, put(7), grantEmpty, put(0), revoke, put(0), revokeEmpty, put(0)) {
		require.NoError(t, err, "command %d", i)
	}
	require.Equal(t, []int64{2, 3, 5, 6, 7}, []int64{grant.revision, grantEmpty.revision, revoke.revision,
		revokeEmpty.revision, l.Revision()})
}

func TestCommandsSeeLeasesOfTheirBatch(t *testing.T) {
	l := idle(t, newStore(t))
	outcomes := l.together(
		&grantCommand{l: l.lessor, row: coder.Lease{ID: 5, TTL: 60}},
		write.NewTxnCommand(putLeased("a", 5)),
		l.revokeCommand(5),
		write.NewTxnCommand(putLeased("b", 5)),
		&grantCommand{l: l.lessor, row: coder.Lease{ID: 5, TTL: 60}},
		write.NewTxnCommand(putLeased("c", 5)),
	)
	for i, err := range outcomes {
		if i == 3 {
			require.ErrorIs(t, err, mvcc.ErrLeaseNotFound)
		} else {
			require.NoError(t, err, "command %d", i)
		}
	}
	st, err := l.lessor.TimeToLive(t.Context(), auth.System, 5, true)
	require.NoError(t, err)
	require.Equal(t, "[c]", fmt.Sprintf("%s", st.Keys))
	require.EqualValues(t, 60, st.GrantedTTL)
}

func TestPermitSeesKeysOfLease(t *testing.T) {
	l := idle(t, newStore(t))
	var seen []string
	permit := auth.NewPermit(func(ctx context.Context, at auth.View) error {
		var keys []string
		err := at.MayWriteLease(ctx, 5, "me", func(key []byte) error {
			keys = append(keys, string(key))
			return nil
		})
		slices.Sort(keys)
		seen = append(seen, fmt.Sprintf("%s", keys))
		return err
	})
	for i, err := range l.permitted(permit,
		&grantCommand{l: l.lessor, row: coder.Lease{ID: 5, TTL: 60}},
		write.NewTxnCommand(putLeased("b", 5)),
		write.NewTxnCommand(putLeased("a", 5)),
		write.NewTxnCommand(del("b")),
		l.revokeCommand(5),
		write.NewTxnCommand(putLeased("c", 0)),
	) {
		require.NoError(t, err, "command %d", i)
	}
	require.Equal(t, "[[] [] [b] [a b] [a] []]", fmt.Sprint(seen[len(seen)-6:]))
}
