package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// TestHandedOverMeansThatNobodyLeads runs a random history: writes that fail, get
// lost, are applied without an answer or late, leaders that fail, freeze, stop,
// transfer, and are reported dead rightly and wrongly.
func TestHandedOverMeansThatNobodyLeads(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SQLBRAIN_TEST_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("SQLBRAIN_TEST_SEED=%d (schedules differ all the same)", seed)
	m := &model{t: t, rnd: rand.New(rand.NewPCG(seed, 0)), store: newStore(t), leading: map[string]bool{}}
	g := newGroup(t, Config{LeaseDuration: time.Second, RenewDeadline: 900 * time.Millisecond, RetryPeriod: 4 * time.Millisecond})
	const size = 4
	members := make([]*member, size)
	for i := range members {
		members[i] = m.join(g, i)
	}
	handedOver := 0
	for range 150 {
		term := g.next()
		if term.handedOver {
			handedOver++
		}
		i, err := strconv.Atoi(term.member)
		require.NoError(t, err)
		holder := members[i]
		switch m.pick(6) {
		case 0:
			holder.stop()
			members[i] = m.join(g, i)
		case 1:
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := holder.Transfer(ctx, strconv.Itoa((i+1)%size)); err != nil {
				t.Log(err)
			}
			cancel()
		case 2:
			term.quit <- errAway
		case 3:
			term.quit <- nil
		case 4: // freezes, until somebody has taken the lock
			holder.store.leave()
			others(members, i, func(o *member) { o.reportDead(term.member) })
			term = g.next()
			m.faults(holder)
			term.quit <- nil
		case 5: // is alive, in fact
			others(members, i, func(o *member) { o.reportDead(term.member) })
			select {
			case term.quit <- nil:
			default:
			}
		}
	}
	t.Logf("%d of 150 terms were handed over", handedOver)
	require.Positive(t, handedOver)
	for _, member := range members {
		member.stop()
	}
}

func others(members []*member, i int, f func(*member)) {
	for j, o := range members {
		if j != i {
			f(o)
		}
	}
}

type model struct {
	t     *testing.T
	store sqlstore.Store

	mu      sync.Mutex
	rnd     *rand.Rand
	leading map[string]bool // by incarnation: who leads and was not fenced
	late    []func() error  // commits on their way
}

func (m *model) pick(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rnd.IntN(n)
}

func (m *model) join(g *group, i int) *member {
	var e *Elector
	ready := make(chan struct{})
	joined := g.join(m.store, strconv.Itoa(i), func(c *Config) {
		m.faults(&member{store: c.Store.(*faultyStore)})
		lead := c.Lead
		c.Lead = func(ctx context.Context, handedOver bool) error {
			<-ready
			return m.lead(ctx, e.lock.incarnation, handedOver, lead)
		}
	})
	e = joined.Elector
	close(ready)
	return joined
}

// lead is what a backend does: it fences the others, leads, and returns nil only
// if nobody fenced it.
func (m *model) lead(ctx context.Context, me string, handedOver bool, lead func(context.Context, bool) error) error {
	if err := m.begin(me, handedOver); err != nil {
		// The driver has to know of the term all the same.
		quit, cancel := context.WithCancel(ctx)
		cancel()
		_ = lead(quit, handedOver)
		return err
	}
	err := lead(ctx, handedOver)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.leading[me] && err == nil {
		err = errors.New("deposed")
	}
	delete(m.leading, me)
	return err
}

func (m *model) begin(me string, handedOver bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if handedOver && len(m.leading) > 0 {
		m.t.Errorf("the lock was handed over to %s, but %v lead", me, m.leading)
	}
	// Fencing is the chain row's: whoever comes late does not depose those who
	// took the lock since.
	if r := readRow(m.t, m.store); r.Incarnation != me {
		return errors.New("too late")
	}
	if m.rnd.IntN(5) == 0 {
		return errors.New("could not fence")
	}
	m.leading = map[string]bool{me: true}
	return nil
}

// faults makes a member's store fail now and then.
func (m *model) faults(o *member) {
	o.store.onGet(func(_ context.Context, get func() ([]byte, error)) ([]byte, error) {
		if m.pick(20) == 0 {
			return nil, errAway
		}
		return get()
	})
	o.store.onCommit(func(_ context.Context, commit func() error) error {
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
