package member

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

// deadline ends a wait for something that does not come.
const deadline = time.Minute

// In a quick election a silent leader is replaced soon. In a slow one it never is within a test, so that whatever does
// happen happens for another reason.
var (
	quick = Config{}
	slow  = Config{ElectionTimeout: time.Hour}
)

// replaced is how long it takes in a quick election to replace a leader that is silent.
const replaced = timing.Unheard + timing.Answer

// elect runs f with an election on an empty store, on a clock of its own: what waits
// for time to pass takes none.
func elect(t *testing.T, cfg Config, f func(t *testing.T, g *group)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(t, newGroup(t, cfg, memstore.New())) })
}

// term is one call of a candidate's lead.
type term struct {
	of  *candidate
	ctx context.Context
	// hold, if it is set before ctx ends, keeps lead from returning until it is
	// closed.
	hold chan struct{}
	quit chan error // makes lead return
}

// holds keeps lead from returning until release is called, or the test ends.
func (t *term) holds() (release func()) {
	t.hold = make(chan struct{})
	release = sync.OnceFunc(func() { close(t.hold) })
	t.of.t.Cleanup(release)
	return release
}

func (t *term) lead() error {
	select {
	case err := <-t.quit:
		return err
	case <-t.ctx.Done():
	}
	if t.hold != nil {
		<-t.hold
	}
	return nil
}

// group is the members of one election, and their terms as they begin.
type group struct {
	t     testing.TB
	cfg   Config
	store sqlstore.Store
	terms chan *term
}

func newGroup(t testing.TB, cfg Config, store sqlstore.Store) *group {
	return &group{t: t, cfg: cfg, store: store, terms: make(chan *term, 1000)}
}

// candidate is a Registry that runs and campaigns, over a store that can be made to fail.
type candidate struct {
	*Registry
	t        testing.TB
	faults   *faultyStore
	observed chan uint64
	around   func(lead func() error) error // calls lead, if it is set
	logs     *eventually.Log
	cancel   context.CancelFunc
	stopped  chan struct{}
}

// join starts a member; it is stopped with the test at the latest.
func (g *group) join(name string, change ...func(*candidate, *Config)) *candidate {
	g.t.Helper()
	c := &candidate{t: g.t, faults: &faultyStore{Store: g.store}, observed: make(chan uint64, 1000), logs: &eventually.Log{},
		stopped: make(chan struct{})}
	cfg := g.cfg
	cfg.Store, cfg.Name, cfg.Force = c.faults, name, true
	cfg.Logger = slog.New(slog.NewTextHandler(c.logs, nil))
	for _, f := range change {
		f(c, &cfg)
	}
	var err error
	c.Registry, err = Join(context.Background(), cfg)
	require.NoError(g.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.Campaign(func(ctx context.Context) error {
		term := &term{of: c, ctx: ctx, quit: make(chan error, 1)}
		g.terms <- term
		if c.around != nil {
			return c.around(term.lead)
		}
		return term.lead()
	}, func(holder uint64) { c.observed <- holder })
	go func() {
		defer close(c.stopped)
		c.Run(ctx)
	}()
	g.t.Cleanup(func() {
		c.faults.come() // else the release is tried until the deadline
		c.stop()
		c.kill()
	})
	return c
}

// joinTwo starts the members a and b, of which a leads and b knows that.
func (g *group) joinTwo() (a, b *candidate, leads *term) {
	g.t.Helper()
	a = g.join("a")
	leads = g.next()
	b = g.join("b")
	b.sees(a)
	return a, b, leads
}

// stop resigns; kill ends the process without another word.
func (c *candidate) stop() { c.Resign() }

func (c *candidate) kill() {
	c.cancel()
	wait(c.t, c.stopped, "Run to return")
}

// freeze makes the process one that the others hear nothing of, until it comes back.
func (c *candidate) freeze() { c.faults.leave() }

func (c *candidate) id() uint64 { return c.Registry.id }

// next waits for the next term to begin.
func (g *group) next() *term {
	g.t.Helper()
	return wait(g.t, g.terms, "a leader")
}

// none requires that no term has begun that nobody waited for.
func (g *group) none() {
	g.t.Helper()
	select {
	case term := <-g.terms:
		require.Failf(g.t, "an unexpected leader", "%s", term.of.cfg.Name)
	default:
	}
}

// row returns the lock row.
func (g *group) row() lock {
	g.t.Helper()
	raw, err := g.store.Get(context.Background(), coder.LockKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return lock{}
	}
	require.NoError(g.t, err)
	l, err := decodeLock(raw)
	require.NoError(g.t, err)
	return l
}

// swap changes the lock row without its holder's doing.
func (g *group) swap(change func(old lock) lock) {
	g.t.Helper()
	b := g.store.BeginBatchWrite()
	old := g.row()
	b.CAS(coder.LockKey(), change(old).raw, old.raw)
	require.NoError(g.t, b.Commit(context.Background()))
}

// heartbeat returns the heartbeat in the member's row.
func (g *group) heartbeat(name string) uint64 { return g.member(name).Heartbeat }

// member returns the row of a member.
func (g *group) member(name string) entry {
	g.t.Helper()
	t, err := readTable(context.Background(), g.store)
	require.NoError(g.t, err)
	e, _ := t.named(name)
	return e
}

// sees waits until the member observed these holders next; nil is none.
func (c *candidate) sees(holders ...*candidate) {
	c.t.Helper()
	for _, h := range holders {
		var want uint64
		if h != nil {
			want = h.id()
		}
		require.Equal(c.t, want, wait(c.t, c.observed, "a holder"))
	}
}

// stays requires that c does not take the lock in its next attempts.
func (g *group) stays(c *candidate, of *term) {
	g.t.Helper()
	for range 3 {
		c.PollNow()
		time.Sleep(10 * time.Millisecond)
	}
	g.none()
	of.live(g.t)
	require.Equal(g.t, of.of.id(), c.Holder())
}

func wait[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(eventually.Deadline):
		require.Fail(t, "waited in vain", "for %s", what)
		panic("unreachable")
	}
}

func (t *term) live(tb testing.TB) {
	tb.Helper()
	require.NoError(tb, t.ctx.Err(), "the leader's context")
}

func (t *term) ends(tb testing.TB) {
	tb.Helper()
	wait(tb, t.ctx.Done(), "the leader's context to end")
}

// await waits until what was logged has the text that many times.
func (c *candidate) await(text string, times int) {
	c.t.Helper()
	for range deadline / time.Millisecond {
		if strings.Count(c.logs.String(), text) >= times {
			return
		}
		time.Sleep(time.Millisecond)
	}
	require.Failf(c.t, "not logged", "%q %d times in:\n%s", text, times, c.logs)
}

// errAway is the error of a database that is not there.
var errAway = errors.New("the test's database is away")

// faultyStore fails while it is away. It calls its hooks, where they are set, around
// polls of the lock row, and around commits that change it.
type faultyStore struct {
	sqlstore.Store
	mu     sync.Mutex
	away   bool
	poll   func(ctx context.Context, read func() ([][]byte, error)) ([][]byte, error)
	commit func(ctx context.Context, commit func() error) error
}

func (s *faultyStore) onPoll(f func(context.Context, func() ([][]byte, error)) ([][]byte, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.poll = f
}

func (s *faultyStore) onCommit(f func(context.Context, func() error) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commit = f
}

func (s *faultyStore) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = true
}

// come makes every call work again.
func (s *faultyStore) come() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away, s.poll, s.commit = false, nil, nil
}

func (s *faultyStore) isAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

func (s *faultyStore) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	s.mu.Lock()
	hook := s.poll
	s.mu.Unlock()
	if s.isAway() {
		return nil, errAway
	}
	read := func() ([][]byte, error) { return s.Store.MultiGet(ctx, keys) }
	if hook == nil {
		return read()
	}
	return hook(ctx, read)
}

func (s *faultyStore) Get(ctx context.Context, key []byte) ([]byte, error) {
	if s.isAway() {
		return nil, errAway
	}
	return s.Store.Get(ctx, key)
}

func (s *faultyStore) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	if s.isAway() {
		return func(yield func(sqlstore.Row, error) bool) { yield(sqlstore.Row{}, errAway) }
	}
	return s.Store.Iter(ctx, r)
}

func (s *faultyStore) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		s.mu.Lock()
		hook := s.commit
		s.mu.Unlock()
		if s.isAway() {
			return errAway
		}
		if hook == nil || !b.Writes(coder.LockKey()) {
			return b.BatchWrite.Commit(ctx)
		}
		// A hook may commit when ctx has ended, as a late packet does.
		return hook(ctx, func() error { return b.BatchWrite.Commit(context.WithoutCancel(ctx)) })
	})
}
