package member

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

// process runs a Registry until it is killed.
type process struct {
	*Registry
	cancel context.CancelFunc
	done   chan struct{}
}

func run(t *testing.T, r *Registry) *process {
	ctx, cancel := context.WithCancel(t.Context())
	p := &process{Registry: r, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		r.Run(ctx)
	}()
	return p
}

// kill ends the process without a word.
func (p *process) kill() {
	p.cancel()
	<-p.done
}

func (p *process) alive(name string) bool {
	for _, m := range p.Cached() {
		if m.Name == name {
			return m.Alive
		}
	}
	return false
}

const interval = timing.MemberHeartbeat

// pass lets time pass in a bubble, and everything that it brings happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// startRare is start with a process that polls as rarely as in production, for tests that take long by its clock.
func startRare(t *testing.T, store sqlstore.Store, name string) *Registry {
	r, err := Join(t.Context(), Config{Store: store, Name: name})
	require.NoError(t, err)
	return r
}

func TestMembersSeeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		n1, n2 := run(t, startRare(t, store, "n1")), run(t, startRare(t, store, "n2"))
		defer n1.kill()
		pass(20 * interval)
		require.True(t, n1.alive("n1"))
		require.True(t, n1.alive("n2"))
		require.True(t, n2.alive("n1"))

		n2.kill()
		pass(interval)
		require.True(t, n1.alive("n2"), "one heartbeat may be late")
		pass(timing.MissedHeartbeats * interval)
		require.False(t, n1.alive("n2"))
		require.True(t, n1.alive("n1"))
		_, err := n1.Update(t.Context(), member(t, n1.Registry, "n2").ID, []string{"http://10.0.0.2:2380"})
		require.NoError(t, err)
		require.False(t, member(t, n1.Registry, "n2").Alive, "that others write its row is no sign of life")

		n2 = run(t, startRare(t, store, "n2"))
		pass(interval)
		require.True(t, n1.alive("n2"))

		n2.kill()
		require.NoError(t, n2.Leave(t.Context()))
		require.True(t, n1.alive("n2"))
		pass(interval)
		require.False(t, n1.alive("n2"), "it said that it stops")
		require.True(t, member(t, n1.Registry, "n2").Stopped)
		require.False(t, member(t, n1.Registry, "n1").Stopped)

		n2 = run(t, startRare(t, store, "n2"))
		require.True(t, member(t, n1.Registry, "n2").Alive)
		require.False(t, member(t, n1.Registry, "n2").Stopped)
		n2.kill()
	})
}

func TestRunReportsHowItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		n1, n2, n3 := run(t, startRare(t, store, "n1")), run(t, startRare(t, store, "n2")), run(t, startRare(t, store, "n3"))
		for _, p := range []*process{n1, n2, n3} {
			defer p.kill()
			require.NoError(t, p.Err())
		}
		_, err := n1.Remove(t.Context(), n2.Self().ID)
		require.NoError(t, err)
		newer := replace(t, store, "n3")
		<-n2.Ended()
		<-n3.Ended()
		require.ErrorIs(t, n2.Err(), ErrRemoved)
		require.ErrorIs(t, n3.Err(), ErrReplaced)
		require.NoError(t, n1.Err())
		pass(10 * interval)
		require.Len(t, n2.Cached(), 2, "it goes on looking, and does not come back")
		require.False(t, n1.alive("n3"), "nobody but the newer process sends heartbeats for it")
		heartbeat(t, newer)
		require.True(t, member(t, n1.Registry, "n3").Alive)
	})
}

// outages is a store whose reads, or commits, fail for as long as a test wants.
type outages struct {
	sqlstore.Store
	reads, commits atomic.Bool
}

var errOutage = fmt.Errorf("%w: made up", sqlstore.ErrUnavailable)

func (o *outages) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	if o.reads.Load() {
		return func(yield func(sqlstore.Row, error) bool) { yield(sqlstore.Row{}, errOutage) }
	}
	return o.Store.Iter(ctx, r)
}

func (o *outages) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	if o.reads.Load() {
		return nil, errOutage
	}
	return o.Store.MultiGet(ctx, keys)
}

func (o *outages) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(o.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		if o.commits.Load() {
			return errOutage
		}
		return b.BatchWrite.Commit(ctx)
	})
}

func TestRunContinuesAfterOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &outages{Store: memstore.New()}
		log := &eventually.Log{}
		r, err := Join(t.Context(), Config{Store: store, Name: "n1", Logger: slog.New(slog.NewTextHandler(log, nil))})
		require.NoError(t, err)
		n1, n2 := run(t, r), run(t, start(t, store, "n2"))
		defer n1.kill()
		defer n2.kill()
		time.Sleep(10*interval + interval/2)
		for range 2 {
			store.reads.Store(true)
			store.commits.Store(true)
			pass(20 * interval)
			_, err := n1.Members(t.Context())
			require.ErrorIs(t, err, sqlstore.ErrUnavailable)
			require.True(t, n1.alive("n2"), "nobody can have sent a heartbeat")

			store.reads.Store(false)
			require.True(t, member(t, n1.Registry, "n2").Alive, "twenty heartbeats went by, but none that could be seen")
			store.commits.Store(false)
			pass(10 * interval)
			require.True(t, n1.alive("n2"))
		}
		require.NoError(t, n1.Err())
		require.Equal(t, 2, strings.Count(log.String(), "cannot send heartbeats"), "once an outage")
		require.Equal(t, 2, strings.Count(log.String(), "sending heartbeats again"))
		require.Greater(t, testutil.ToFloat64(n1.metrics.failures), 2.0)
	})
}

// A heartbeat that is under way must not undo what others change meanwhile.
func TestHeartbeatsOvertakenByChanges(t *testing.T) {
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		paused := &interrupted{Store: store}
		n1, n2 := start(t, store, "n1", "http://10.0.0.1:2380"), start(t, paused, "n2", "http://10.0.0.2:2380")
		id := n2.Self().ID
		paused.before = func() {
			_, err := n1.Update(t.Context(), id, []string{"http://10.0.0.5:2380"})
			require.NoError(t, err)
		}
		heartbeat(t, n2)
		require.Equal(t, []string{"http://10.0.0.5:2380"}, member(t, n1, "n2").PeerURLs)
		paused.before = func() {
			_, err := n1.Remove(t.Context(), id)
			require.NoError(t, err)
		}
		heartbeat(t, n2)
		requireEnded(t, n2, ErrRemoved)
		require.Len(t, list(t, n1), 1)
	})
}

// interrupted is a store that calls before, once, between what leads to a commit
// and the commit.
type interrupted struct {
	sqlstore.Store
	before func()
}

func (i *interrupted) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(i.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		if f := i.before; f != nil {
			i.before = nil
			f()
		}
		return b.BatchWrite.Commit(ctx)
	})
}

func TestLeaveAndAdvertise(t *testing.T) {
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		n1, n2 := start(t, store, "n1"), start(t, store, "n2")
		require.NoError(t, n2.Advertise(t.Context(), []string{"http://10.0.0.2:2379"}))
		require.NoError(t, n2.Advertise(t.Context(), []string{"http://10.0.0.2:2379"}))
		require.Equal(t, []string{"http://10.0.0.2:2379"}, member(t, n1, "n2").ClientURLs)
		require.True(t, member(t, n1, "n2").Alive)
		require.NoError(t, n2.Leave(t.Context()))
		require.NoError(t, n2.Leave(t.Context()))
		heartbeat(t, n2)
		require.False(t, member(t, n1, "n2").Alive, "a heartbeat that comes late does not unsay it")
		id := n2.Self().ID
		require.Equal(t, id, start(t, store, "n2").Self().ID, "it is a member still")
		require.True(t, member(t, n1, "n2").Alive)
	})
}

// Whatever becomes of single commits, what is answered is true.
func TestUnknownOutcomesAreResolved(t *testing.T) {
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprint("applied=", applied), func(t *testing.T) {
			store := &uncertain{Store: newStore(t), applied: applied}
			join := func(name, peerURL string) *Registry {
				store.next.Store(true)
				return start(t, store, name, peerURL)
			}
			n1, n2 := join("n1", "http://10.0.0.1:2380"), join("n2", "http://10.0.0.2:2380")
			require.Len(t, list(t, n1), 2)

			store.next.Store(true)
			added, members, err := n1.Add(t.Context(), []string{"http://10.0.0.3:2380"}, false)
			require.NoError(t, err)
			require.Len(t, members, 3)
			require.Contains(t, members, added)

			store.next.Store(true)
			members, err = n1.Update(t.Context(), added.ID, []string{"http://10.0.0.4:2380"})
			require.NoError(t, err)
			m, _ := withID(members, added.ID)
			require.Equal(t, []string{"http://10.0.0.4:2380"}, m.PeerURLs)

			store.next.Store(true)
			members, err = n1.Remove(t.Context(), added.ID)
			require.NoError(t, err, "that it is not found is our own doing")
			require.Len(t, members, 2)

			store.next.Store(true)
			require.NoError(t, n2.heartbeat(t.Context(), nil))
			store.next.Store(true)
			require.NoError(t, n2.Leave(t.Context()))
			require.True(t, member(t, n1, "n2").Stopped)

			// The outcome cannot be found out.
			store.next.Store(true)
			store.outage = true
			_, _, err = n1.Add(t.Context(), []string{"http://10.0.0.5:2380"}, false)
			require.True(t, errors.Is(err, sqlstore.ErrUncertain), "%v", err)
		})
	}
}

// TestUnknownOutcomesAreRepeatedAfterPauses: a database that answers reads, and no commits, is not kept busy.
func TestUnknownOutcomesAreRepeatedAfterPauses(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, r *Registry, other uint64) error{
		"join": func(ctx context.Context, r *Registry, _ uint64) error {
			_, err := Join(ctx, config(t, r.store, "n3"))
			return err
		},
		"change of a row": func(ctx context.Context, r *Registry, _ uint64) error {
			return r.Advertise(ctx, []string{"http://10.0.0.9:2379"})
		},
		"change of the members": func(ctx context.Context, r *Registry, _ uint64) error {
			_, _, err := r.Add(ctx, []string{"http://10.0.0.3:2380"}, false)
			return err
		},
		"removal of itself": func(ctx context.Context, r *Registry, _ uint64) error { return r.removeSelf(ctx) },
		"challenge": func(ctx context.Context, r *Registry, other uint64) error {
			table, err := readTable(ctx, r.store)
			if err != nil {
				return err
			}
			e, _ := table.withID(other)
			_, err = challenge(ctx, r.store, e, time.Second)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const deadline = 10 * time.Second
				store := &uncertain{Store: memstore.New()}
				r, other := start(t, store, "n1"), start(t, store, "n2").id
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				commits := 0
				store.every = func() {
					if commits++; commits == 100 {
						cancel()
					}
				}
				began := time.Now()
				require.ErrorIs(t, call(ctx, r, other), sqlstore.ErrUncertain)
				require.Equal(t, deadline, time.Since(began), "after %d commits", commits)
			})
		})
	}
}

// uncertain is a store on which the next commit, if a test says so, answers that
// its outcome is unknown.
type uncertain struct {
	sqlstore.Store
	every   func() // nil, or called by each commit, all of which have no effect and answer so
	applied bool   // it took effect
	outage  bool   // and then nothing can be read
	next    atomic.Bool
	out     atomic.Bool
}

func (u *uncertain) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(u.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		if u.every != nil {
			u.every()
			return fmt.Errorf("%w: made up", sqlstore.ErrUncertain)
		}
		if !u.next.Swap(false) {
			return b.BatchWrite.Commit(ctx)
		}
		if u.applied {
			if err := b.BatchWrite.Commit(ctx); err != nil {
				return err
			}
		}
		u.out.Store(u.outage)
		return fmt.Errorf("%w: made up", sqlstore.ErrUncertain)
	})
}

func (u *uncertain) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	if u.out.Load() {
		return func(yield func(sqlstore.Row, error) bool) { yield(sqlstore.Row{}, errOutage) }
	}
	return u.Store.Iter(ctx, r)
}
