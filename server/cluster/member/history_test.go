package member

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// TestOneOfFiveLeads: five start at once on an empty table. Each leader hands
// over by stopping, transferring or failing; never do two lead.
func TestOneOfFiveLeads(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		g := newGroup(t, slow, store)
		var leading atomic.Int32
		members := map[string]*candidate{}
		join := func(name string) {
			members[name] = g.join(name, func(c *candidate, _ *Config) {
				c.around = func(lead func() error) error {
					if n := leading.Add(1); n != 1 {
						t.Errorf("%d lead at once", n)
					}
					defer leading.Add(-1)
					return lead()
				}
			})
		}
		for i := range 5 {
			join(fmt.Sprintf("m%d", i))
		}
		for round := range 12 {
			term := g.next()
			leader := term.of
			require.Equal(t, leader.id(), leader.Holder())
			for wait(t, leader.observed, "an observed holder") != leader.id() {
			}
			switch round % 3 {
			case 0:
				leader.stop()
				leader.kill()
				require.NoError(t, leader.Leave(t.Context()))
				join(leader.cfg.Name)
			case 1:
				successor := fmt.Sprintf("m%d", round%5)
				if members[successor] == leader {
					successor = "m3"
				}
				require.NoError(t, leader.Transfer(t.Context(), members[successor].Self()))
			case 2:
				term.quit <- errAway
			}
		}
	})
}

var historySeed = flag.Uint64("seed", 0, "the seed of TestRandomHistories, in place of a random one")

// TestRandomHistories of writes that fail, get lost, are applied without an answer or
// late, and of leaders that fail, freeze, stop, transfer, and are suspected rightly and
// wrongly. No grant is led with twice, no process leads twice at once, each leader
// that another one followed ends, and the cluster always gets another leader.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	seed := cmp.Or(*historySeed, uint64(time.Now().UnixNano()))
	t.Logf("repeat: -seed=%d (schedules differ all the same)", seed)
	synctest.Test(t, func(t *testing.T) {
		m := &model{t: t, rnd: rand.New(rand.NewPCG(seed, 0)), grants: map[int64]bool{}}
		g := newGroup(t, quick, memstore.New())
		const size = 4
		members := make([]*candidate, size)
		for i := range members {
			members[i] = m.join(g, i)
		}
		others := func(i int, f func(*candidate)) {
			for j, o := range members {
				if j != i {
					f(o)
				}
			}
		}
		for range 150 {
			term := g.next()
			holder := term.of
			i, err := strconv.Atoi(holder.cfg.Name)
			require.NoError(t, err)
			select {
			case <-term.ctx.Done(): // another one has taken the lock already
				continue
			default:
			}
			switch m.pick(6) {
			case 0:
				holder.stop()
				holder.kill()
				members[i] = m.join(g, i)
			case 1:
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				if err := holder.Transfer(ctx, members[(i+1)%size].Self()); err != nil {
					t.Log(err)
				}
				cancel()
			case 2:
				term.quit <- errAway
			case 3:
				term.quit <- nil
			case 4: // freezes, until another one has taken the lock
				holder.freeze()
				others(i, func(o *candidate) { o.Refused(holder.id()) })
				next := g.next()
				holder.faults.come()
				m.faults(holder)
				term.ends(t)
				next.quit <- nil
			case 5: // is alive, in fact
				others(i, func(o *candidate) { o.Refused(holder.id()) })
				select {
				case term.quit <- nil:
				default:
				}
			}
		}
		for _, c := range members {
			c.stop()
		}
		require.Greater(t, len(m.grants), 100)
	})
}

type model struct {
	t *testing.T

	mu     sync.Mutex
	rnd    *rand.Rand
	grants map[int64]bool
	late   []func() error // commits on their way
}

func (m *model) pick(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rnd.IntN(n)
}

func (m *model) join(g *group, i int) *candidate {
	var leading atomic.Bool
	return g.join(strconv.Itoa(i), func(c *candidate, _ *Config) {
		m.faultsOf(c.faults)
		c.around = func(lead func() error) error {
			if leading.Swap(true) {
				m.t.Error("a process leads twice at once")
			}
			defer leading.Store(false)
			c.elector.mu.Lock()
			grant := c.elector.term.grant
			c.elector.mu.Unlock()
			m.mu.Lock()
			again := m.grants[grant]
			m.grants[grant] = true
			m.mu.Unlock()
			if again {
				m.t.Errorf("grant %d is led with twice", grant)
			}
			err := lead()
			if err == nil && m.pick(5) == 0 {
				err = errors.New("deposed")
			}
			return err
		}
	})
}

func (m *model) faults(c *candidate) { m.faultsOf(c.faults) }

// faultsOf makes a member's store fail now and then.
func (m *model) faultsOf(s *faultyStore) {
	s.onPoll(func(_ context.Context, read func() ([][]byte, error)) ([][]byte, error) {
		if m.pick(20) == 0 {
			return nil, errAway
		}
		return read()
	})
	s.onCommit(func(_ context.Context, commit func() error) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, arrive := range m.late {
			_ = arrive()
		}
		m.late = nil
		switch m.rnd.IntN(20) {
		case 0:
			return errAway
		case 1:
			return fmt.Errorf("%w: never arrived", sqlstore.ErrUncertain)
		case 2:
			if err := commit(); err != nil {
				return err
			}
			return fmt.Errorf("%w: arrived", sqlstore.ErrUncertain)
		case 3:
			m.late = append(m.late, commit)
			return fmt.Errorf("%w: arrives late", sqlstore.ErrUncertain)
		}
		return commit()
	})
}
