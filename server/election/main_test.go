package election

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(enginetest.Main(m)) }

// patience ends a wait for something that does not come.
const patience = time.Minute

// Durations of two kinds of elections. In a quick one the lock expires after a
// second; in a slow one never within a test, so that whatever does happen
// happens for another reason.
var (
	quick = Config{LeaseDuration: time.Second, RenewDeadline: 600 * time.Millisecond, RetryPeriod: 20 * time.Millisecond}
	slow  = Config{LeaseDuration: time.Hour, RenewDeadline: 50 * time.Minute, RetryPeriod: 20 * time.Millisecond}
)

func newStore(t testing.TB) sqlstore.Store {
	s := memstore.New()
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// term is one call of a member's Lead.
type term struct {
	member     string
	ctx        context.Context
	handedOver bool
	// hold, if it is set before ctx ends, keeps Lead from returning until it is
	// closed.
	hold chan struct{}
	quit chan error // makes Lead return
}

// lead waits for ctx or quit, as a Lead does.
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
	terms chan *term
}

func newGroup(t testing.TB, cfg Config) *group {
	return &group{t: t, cfg: cfg, terms: make(chan *term, 100)}
}

// member is an Elector that runs, over a store that can be made to fail.
type member struct {
	*Elector
	t        testing.TB
	store    *faultyStore
	observed chan string
	logs     *logs
	cancel   context.CancelFunc
	stopped  chan struct{}
}

// join starts a member; it is stopped with the test at the latest.
func (g *group) join(store sqlstore.Store, name string, change ...func(*Config)) *member {
	g.t.Helper()
	m := &member{t: g.t, store: &faultyStore{Store: store}, observed: make(chan string, 1000), logs: newLogs(g.t), stopped: make(chan struct{})}
	cfg := g.cfg
	cfg.Store, cfg.Identity, cfg.Logger = m.store, name, slog.New(m.logs)
	cfg.Lead = func(ctx context.Context, handedOver bool) error {
		term := &term{member: name, ctx: ctx, handedOver: handedOver, quit: make(chan error, 1)}
		g.terms <- term
		return term.lead()
	}
	cfg.Observed = func(holder string) { m.observed <- holder }
	for _, f := range change {
		f(&cfg)
	}
	var err error
	m.Elector, err = New(cfg)
	require.NoError(g.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() {
		defer close(m.stopped)
		m.Run(ctx)
	}()
	g.t.Cleanup(func() {
		m.store.come() // else the release is tried until the deadline
		m.stop()
	})
	return m
}

// stop ends Run and waits for it.
func (m *member) stop() {
	m.cancel()
	wait(m.t, m.stopped, "Run to return")
}

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
		require.Failf(g.t, "an unexpected leader", "%s", term.member)
	default:
	}
}

// reportDead reports a holder dead that was not suspected before.
func (m *member) reportDead(holder string) {
	m.Suspect(holder)
	m.ReportDead(holder)
}

// sees waits until the member observed these holders next.
func (m *member) sees(holders ...string) {
	m.t.Helper()
	for _, want := range holders {
		require.Equal(m.t, want, wait(m.t, m.observed, "holder "+want))
	}
}

func wait[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
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

// errAway is the error of a database that is not there.
var errAway = errors.New("the test's database is away")

// faultyStore calls its hooks, where they are set, around reads and commits.
type faultyStore struct {
	sqlstore.Store
	mu     sync.Mutex
	get    func(ctx context.Context, get func() ([]byte, error)) ([]byte, error)
	commit func(ctx context.Context, commit func() error) error
}

func (s *faultyStore) onGet(f func(context.Context, func() ([]byte, error)) ([]byte, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.get = f
}

func (s *faultyStore) onCommit(f func(context.Context, func() error) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commit = f
}

// leave makes every call fail, come every call work again.
func (s *faultyStore) leave() {
	s.onGet(func(context.Context, func() ([]byte, error)) ([]byte, error) { return nil, errAway })
	s.onCommit(func(context.Context, func() error) error { return errAway })
}

func (s *faultyStore) come() {
	s.onGet(nil)
	s.onCommit(nil)
}

// reads returns a channel that gets a token with every read from now on.
func (s *faultyStore) reads() <-chan struct{} {
	c := make(chan struct{})
	s.onGet(func(ctx context.Context, get func() ([]byte, error)) ([]byte, error) {
		select {
		case c <- struct{}{}:
		default:
		}
		return get()
	})
	return c
}

func (s *faultyStore) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.mu.Lock()
	hook := s.get
	s.mu.Unlock()
	get := func() ([]byte, error) { return s.Store.Get(ctx, key) }
	if hook == nil {
		return get()
	}
	return hook(ctx, get)
}

func (s *faultyStore) BeginBatchWrite() sqlstore.BatchWrite {
	return &faultyBatch{BatchWrite: s.Store.BeginBatchWrite(), store: s}
}

type faultyBatch struct {
	sqlstore.BatchWrite
	store *faultyStore
}

func (b *faultyBatch) Commit(ctx context.Context) error {
	b.store.mu.Lock()
	hook := b.store.commit
	b.store.mu.Unlock()
	if hook == nil {
		return b.BatchWrite.Commit(ctx)
	}
	// A hook may commit when ctx has ended, as a late packet does.
	return hook(ctx, func() error { return b.BatchWrite.Commit(context.WithoutCancel(ctx)) })
}

// readRow returns the lock row, nil if there is none.
func readRow(t testing.TB, store sqlstore.Store) *row {
	t.Helper()
	raw, err := store.Get(context.Background(), coder.LockKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return nil
	}
	require.NoError(t, err)
	r, err := decodeRow(raw)
	require.NoError(t, err)
	return r
}

// logs keeps what is logged, and passes warnings on to the test.
type logs struct {
	slog.Handler
	mu      *sync.Mutex
	records *[]slog.Record
	changed chan struct{}
}

func newLogs(t testing.TB) *logs {
	return &logs{
		Handler: slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}),
		mu:      new(sync.Mutex), records: new([]slog.Record), changed: make(chan struct{}, 1),
	}
}

func (l *logs) Enabled(context.Context, slog.Level) bool { return true }

func (l *logs) Handle(ctx context.Context, r slog.Record) error {
	l.mu.Lock()
	*l.records = append(*l.records, r)
	l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
	if !l.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

func (l *logs) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logs{Handler: l.Handler.WithAttrs(attrs), mu: l.mu, records: l.records, changed: l.changed}
}

func (l *logs) WithGroup(name string) slog.Handler {
	return &logs{Handler: l.Handler.WithGroup(name), mu: l.mu, records: l.records, changed: l.changed}
}

// await waits until a record with that text in its message has been logged that
// many times since the start.
func (l *logs) await(t testing.TB, text string, times int) {
	t.Helper()
	timeout := time.After(patience)
	for len(l.find(text)) < times {
		select {
		case <-l.changed:
		case <-timeout:
			require.Failf(t, "not logged", "%q %d times", text, times)
		}
	}
}

func (l *logs) find(text string) (found []slog.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range *l.records {
		if strings.Contains(r.Message, text) {
			found = append(found, r)
		}
	}
	return found
}
