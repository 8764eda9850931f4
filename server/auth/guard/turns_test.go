package guard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// checkTime is how long a check takes in these tests: that of bcrypt at its default cost.
const checkTime = 60 * time.Millisecond

// flood is wrong logins of clients that try again at once.
type flood struct {
	t    *testing.T
	q    *turns
	wg   sync.WaitGroup
	stop context.CancelFunc
	ctx  context.Context
}

func newFlood(t *testing.T, q *turns) *flood {
	f := &flood{t: t, q: q}
	f.ctx, f.stop = context.WithCancel(t.Context())
	return f
}

// client starts one, with the address and the name of each of its logins.
func (f *flood) client(next func() (source, name string)) {
	f.wg.Go(func() {
		for f.ctx.Err() == nil {
			source, name := next()
			err := f.q.run(f.ctx, loginOf(source, name, !strings.HasPrefix(name, "random")), "",
				func() bool { time.Sleep(checkTime); return false })
			if errors.Is(err, mvcc.ErrTooManyRequests) {
				_ = retry.Sleep(f.ctx, 200*time.Millisecond)
			}
		}
	})
}

func (f *flood) end() {
	f.stop()
	f.wg.Wait()
}

// loggedIn makes a right login, and returns how long it waited.
func loggedIn(t *testing.T, q *turns, source, name string) time.Duration {
	t.Helper()
	start := time.Now()
	require.NoError(t, q.run(t.Context(), loginOf(source, name, !strings.HasPrefix(name, "random")), "",
		func() bool { time.Sleep(checkTime); return true }))
	return time.Since(start)
}

func fixed(source, name string) func() (string, string) {
	return func() (string, string) { return source, name }
}

func randomName(source string) func() (string, string) {
	return func() (string, string) { return source, fmt.Sprint("random", rand.Uint64()) }
}

// Wrong logins must not keep right ones out, wherever they come from and whatever they name. Each
// right login is made as the first one of its address and name here, and after one that succeeded.
func TestRightLoginsSucceedDuringFloodsOfWrongOnes(t *testing.T) {
	const nat = "192.0.2.1"
	same := func(f *flood, clients int, next func() (string, string)) {
		for range clients {
			f.client(next)
		}
	}
	many := func(next func(source string) func() (string, string)) func(*flood) {
		return func(f *flood) {
			for i := range 300 {
				f.client(next(fmt.Sprint("198.51.100.", i)))
			}
		}
	}
	for name, c := range map[string]struct {
		flood  func(*flood)
		source string
	}{
		"of the same user behind the same address": {func(f *flood) { same(f, 64, fixed(nat, "app")) }, nat},
		"of another user behind the same address":  {func(f *flood) { same(f, 64, fixed(nat, "other")) }, nat},
		"of any user behind the same address":      {func(f *flood) { same(f, 64, randomName(nat)) }, nat},
		"of more names behind it than may wait":    {func(f *flood) { same(f, 3*waitingPerSlot, randomName(nat)) }, nat},
		"of the same user from another address":    {func(f *flood) { same(f, 200, fixed("198.51.100.1", "app")) }, nat},
		"of the same user from 300 addresses": {many(func(source string) func() (string,
			string) {
			return fixed(source, "app")
		}), nat},
		"of another user from 300 addresses": {many(func(source string) func() (string,
			string) {
			return fixed(source, "other")
		}), nat},
		"of any user from 300 addresses": {many(randomName), nat},
		"of the same user from 300 addresses, once": {many(func(source string) func() (string,
			string) {
			return fixed(source, "app")
		}), "198.51.100.7"},
	} {
		for _, after := range []time.Duration{0, 10 * time.Second} {
			for _, before := range []bool{true, false} {
				if c.source != nat && !before {
					continue // cannot be told from the flood
				}
				t.Run(fmt.Sprintf("%s/after %s/succeeded before %v", name, after, before), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						q := newTurns(1, waitingPerSlot)
						if before {
							loggedIn(t, q, c.source, "app")
						}
						f := newFlood(t, q)
						defer f.end()
						c.flood(f)
						synctest.Wait()
						time.Sleep(after)
						for range 5 {
							require.Less(t, loggedIn(t, q, c.source, "app"), 5*time.Second)
						}
					})
				})
			}
		}
	}
}

// However many invented names fail, a user whose login failed comes first, and is known to have failed.
func TestInventedNamesComeAfterUsers(t *testing.T) {
	const nat = "192.0.2.1"
	synctest.Test(t, func(t *testing.T) {
		q := newTurns(1, waitingPerSlot)
		app := loginOf(nat, "app", true)
		wrong := func() bool { return false }
		for range loginsFree / 2 {
			require.NoError(t, q.run(t.Context(), app, "", wrong))
		}
		for i := range maxSources + 1000 {
			require.NoError(t, q.run(t.Context(), loginOf(nat, fmt.Sprint(i), false), "", wrong))
		}
		require.Equal(t, loginsFree/2, q.logins.count(app))
		f := newFlood(t, q)
		defer f.end()
		for range 3 * waitingPerSlot {
			f.client(randomName(nat))
		}
		synctest.Wait()
		require.Less(t, loggedIn(t, q, nat, "app"), 5*time.Second)
	})
}

// Of one login, clients that failed before come after others: the right password is among the others.
func TestConnectionsThatFailedComeLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTurns(1, waitingPerSlot)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = q.run(ctx, loginOf("a", "app", true), fmt.Sprint("a:", i),
						func() bool { time.Sleep(5 * checkTime); return false })
				}
			})
		}
		time.Sleep(2 * time.Minute)
		defer wg.Wait()
		defer cancel()
		for i := range 5 {
			start := time.Now()
			require.NoError(t, q.run(t.Context(), loginOf("a", "app", true), fmt.Sprint("a:r", i), func() bool { return true }))
			require.LessOrEqual(t, time.Since(start), 5*checkTime)
		}
	})
}

// A user that floods with right logins has its turns only.
func TestUsersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTurns(1, waitingPerSlot)
		loggedIn(t, q, "a", "busy")
		loggedIn(t, q, "a", "calm")
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { loggedIn(t, q, "a", "busy") })
		}
		synctest.Wait()
		for range 10 {
			require.LessOrEqual(t, loggedIn(t, q, "a", "calm"), 3*checkTime)
		}
		wg.Wait()
	})
}

// However many others there are, those that succeeded before have half of the turns.
func TestHalfOfTheTurnsBelongToLoginsThatSucceededBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTurns(2, waitingPerSlot)
		loggedIn(t, q, "a", "app")
		f := newFlood(t, q)
		defer f.end()
		for i := range 100 {
			f.client(fixed(fmt.Sprint(i), "x"))
		}
		synctest.Wait()
		start := time.Now()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { loggedIn(t, q, "a", "app") })
		}
		wg.Wait()
		require.LessOrEqual(t, time.Since(start), 22*checkTime)
		require.GreaterOrEqual(t, time.Since(start), 18*checkTime, "the other half is not theirs")
	})
}

// A login whose failures are used up has one turn at a time, and leaves the others to other logins.
func TestOneLoginIsNotGuessedWithAllProcessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTurns(16, waitingPerSlot)
		f := newFlood(t, q)
		defer f.end()
		for range 64 {
			f.client(fixed("a", "x"))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		q.mu.Lock()
		defer q.mu.Unlock()
		require.Equal(t, 1, q.running[loginOf("a", "x", true)])
		require.Equal(t, 15, q.free)
	})
}

func TestTheMemoryOfTurnsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTurns(2, waitingPerSlot)
		for i := range maxSources + 100 {
			require.NoError(t, q.run(t.Context(), loginOf(fmt.Sprint(i), "app", true), "", func() bool { return true }))
		}
		f := newFlood(t, q)
		for i := range 300 {
			f.client(randomName(fmt.Sprint(i)))
			f.client(randomName(fmt.Sprint(maxSources + i)))
		}
		for range 100 {
			time.Sleep(checkTime)
			synctest.Wait()
			q.mu.Lock()
			for _, queue := range []*lane{&q.known, &q.others} {
				require.LessOrEqual(t, len(queue.waiting), waitingPerSlot)
				require.LessOrEqual(t, len(queue.names), 2*waitingPerSlot)
			}
			require.LessOrEqual(t, len(q.running), 2)
			require.Equal(t, maxSources, q.succeeded.Len())
			q.mu.Unlock()
		}
		f.end()
		require.Equal(t, 2, q.free)
		require.Empty(t, q.running)
		require.Empty(t, q.others.waiting)
	})
}

func TestACallThatGoesAwayLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTurns(1, 2)
		release := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := q.run(t.Context(), loginOf("a", "x", true), "", func() bool { <-release; return true }); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		var refused atomic.Int32
		for range 3 {
			wg.Go(func() {
				err := q.run(ctx, loginOf("a", "x", true), "", func() bool { t.Error("run"); return true })
				if errors.Is(err, mvcc.ErrTooManyRequests) {
					refused.Add(1)
				} else if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		require.EqualValues(t, 1, refused.Load())
		cancel()
		synctest.Wait()
		require.Empty(t, q.others.waiting)
		close(release)
		wg.Wait()
		require.Equal(t, 1, q.free)
		loggedIn(t, q, "a", "x")
	})
}
