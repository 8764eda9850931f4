package member

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// certificate is a Certificate whose fingerprint a test sets.
type certificate struct {
	mu        sync.Mutex
	own       string
	published []string
}

func (c *certificate) Fingerprint() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own
}

func (c *certificate) Published(fingerprint string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.published = append(c.published, fingerprint)
}

func (c *certificate) rotate(fingerprint string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own, c.published = fingerprint, nil
}

func (c *certificate) seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.published
}

func TestRowsHaveTheFingerprintOfTheProcess(t *testing.T) {
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		own := &certificate{own: "f1"}
		r, err := Join(t.Context(), Config{Store: store, Name: "n1", Certificate: own})
		require.NoError(t, err)
		other := start(t, store, "n2")
		require.Equal(t, "f1", member(t, other, "n1").Fingerprint)
		require.Empty(t, member(t, other, "n2").Fingerprint)
		require.Equal(t, []string{"f1"}, own.seen(), "the process is told once the table has it")

		own.rotate("f2")
		require.Equal(t, "f1", member(t, other, "n1").Fingerprint)
		heartbeat(t, r)
		require.Equal(t, "f2", member(t, other, "n1").Fingerprint)
		list(t, r)
		require.Contains(t, own.seen(), "f2")
	})
}

// Members that list in between refuse the certificate that it shows until then.
func TestANewFingerprintIsKnownToBePublishedAtTheNextPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, own := memstore.New(), &certificate{own: "f1"}
		r, err := Join(t.Context(), Config{Store: store, Name: "n1", Certificate: own})
		require.NoError(t, err)
		defer run(t, r).kill()
		other := start(t, store, "n2")
		pass(interval)
		own.rotate("f2")
		for member(t, other, "n1").Fingerprint == "f1" {
			pass(timing.Poll)
		}
		pass(timing.Poll)
		require.Contains(t, own.seen(), "f2")
	})
}

// countingStore counts reads of ranges, which looks at the table are.
type countingStore struct {
	sqlstore.Store
	looks atomic.Int64
	err   error
}

func (s *countingStore) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	s.looks.Add(1)
	if s.err != nil {
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(s.err)
		return s.Store.Iter(ctx, r)
	}
	return s.Store.Iter(ctx, r)
}

func TestRefreshSeesWhatWasCommittedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		r := run(t, start(t, store, "n1"))
		defer r.kill()
		for _, name := range []string{"n2", "n3"} {
			start(t, store, name)
			listed := r.Listed()
			require.NoError(t, r.Refresh(t.Context()))
			require.True(t, r.alive(name))
			<-listed
		}
	})
}

func TestRefreshesShareLooksAndAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{Store: memstore.New()}
		r := run(t, start(t, store, "n1"))
		defer r.kill()
		synctest.Wait()
		before := store.looks.Load()
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				for range 20 {
					if err := r.Refresh(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		began := time.Now()
		callers.Wait()
		require.LessOrEqual(t, time.Since(began), 20*2*timing.RefreshPause)
		// One per pause, the regular ones, that of the first poll, and the heartbeats', which list twice at most.
		require.LessOrEqual(t, store.looks.Load()-before,
			int64(time.Since(began)/timing.RefreshPause+3*time.Since(began)/timing.MemberList+3))
	})
}

func TestRefreshFailsAsTheDatabaseDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{Store: memstore.New()}
		r := run(t, start(t, store, "n1"))
		synctest.Wait()
		store.err = errors.New("away")
		require.Error(t, r.Refresh(t.Context()))
		r.kill()
	})
}

func TestOtherMembersSeeChangesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		r := run(t, start(t, store, "n1"))
		defer r.kill()
		seen := func() int {
			pass(2 * r.cfg.poll)
			return len(r.Cached())
		}
		require.Equal(t, 1, seen())
		other := run(t, start(t, store, "n2"))
		require.Equal(t, 2, seen())
		listed := r.Listed()
		require.Equal(t, 2, seen())
		select {
		case <-listed:
			t.Error("the members are read although nothing has changed")
		default:
		}
		require.Less(t, 100*r.cfg.poll, interval)
		other.kill()
		_, err := other.Remove(t.Context(), r.Self().ID)
		require.NoError(t, err)
		pass(2 * r.cfg.poll)
		requireEnded(t, r.Registry, ErrRemoved)
	})
}
