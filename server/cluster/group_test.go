package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/server/peer"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// patience ends a wait for something that does not come.
const patience = time.Minute

// timing is the lock's.
type timing struct{ lease, deadline, retry time.Duration }

// In a quick group the lock expires after a second. In a slow one it never does
// within a test: who leads changes for a better reason, or not at all.
var (
	quick = timing{lease: time.Second, deadline: 800 * time.Millisecond, retry: 50 * time.Millisecond}
	slow  = timing{lease: time.Hour, deadline: 50 * time.Minute, retry: 20 * time.Millisecond}
)

// group is the nodes of one cluster, in one process.
type group struct {
	t      testing.TB
	store  sqlstore.Store
	timing timing

	mu      sync.Mutex
	members []*member // those that live
	dead    []*member
}

// member is a node, its server for peers, and what leads in and out of it.
type member struct {
	*Node
	t    testing.TB
	name string
	line *line
	door *door

	server *grpc.Server
	served chan error
	ended  sync.Once
}

// newGroup starts nodes called a, b, c and so on.
func newGroup(t testing.TB, store sqlstore.Store, timing timing, n int) *group {
	t.Helper()
	g := &group{t: t, store: store, timing: timing}
	t.Cleanup(g.close)
	for i := range n {
		g.join(string(rune('a'+i)), freeAddress(t))
	}
	return g
}

// newMemory returns an empty store.
func newMemory(t testing.TB) sqlstore.Store {
	s := memstore.New()
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// openURL returns a store on a database that has nothing yet.
func openURL(t testing.TB, raw string) sqlstore.Store {
	t.Helper()
	u, err := sqlstore.ParseURL(raw)
	require.NoError(t, err)
	db, err := sqlstore.OpenDB(u, sqlstore.Options{})
	require.NoError(t, err)
	require.NoError(t, migrations.Up(t.Context(), db.DialectName(), db.SQL()))
	require.NoError(t, db.Close())
	s, err := sqlstore.Open(t.Context(), u, sqlstore.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// join starts a node whose peers reach it at address.
func (g *group) join(name, address string, change ...func(*Config)) *member {
	g.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(g.t, err)
	m := &member{t: g.t, name: name, line: &line{Store: g.store}, served: make(chan error, 1)}
	m.door = newDoor(g.t, address, l.Addr().String())
	log := slog.New(slog.NewTextHandler(g.t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})).With("node", name)
	cfg := Config{
		Store: m.line, Name: name, Version: "test", PeerURLs: []string{m.door.url()},
		LeaseDuration: g.timing.lease, RenewDeadline: g.timing.deadline, RetryPeriod: g.timing.retry,
		Backend: backend.Config{Logger: log}, Logger: log,
	}
	for _, f := range change {
		f(&cfg)
	}
	m.Node, err = Join(g.t.Context(), cfg)
	if err != nil {
		_ = l.Close()
	}
	require.NoError(g.t, err)
	m.server = grpc.NewServer(
		grpc.Creds(m.PeerCredentials()),
		grpc.UnaryInterceptor(peer.CheckUnary(Peer{m.Node})), grpc.StreamInterceptor(peer.CheckStream(Peer{m.Node})),
		grpc.WaitForHandlers(true),
	)
	peer.Register(m.server, Peer{m.Node})
	go func() { m.served <- m.server.Serve(l) }() // end waits for it
	m.Start()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = append(g.members, m)
	return m
}

// close ends all nodes; those that were killed may use the database for that, which
// a process that is gone need not.
func (g *group) close() {
	var closing sync.WaitGroup
	for _, m := range g.all() {
		m.thaw()
		closing.Go(func() { m.end(true) })
	}
	for _, m := range g.dead {
		m.line.restore()
		closing.Go(func() { m.end(false) })
	}
	closing.Wait()
}

// end ends a node as a process does that is asked to; heard says whether it can
// still reach anybody.
func (m *member) end(heard bool) {
	m.ended.Do(func() {
		m.Resign()
		m.server.Stop()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := m.Close(ctx); heard {
			assert.NoError(m.t, err, "closing %s", m.name)
		}
		assert.NoError(m.t, <-m.served)
	})
}

// all returns the nodes that live.
func (g *group) all() []*member {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.members)
}

// others returns the nodes that live, but for m.
func (g *group) others(m *member) []*member {
	return slices.DeleteFunc(g.all(), func(o *member) bool { return o == m })
}

// leave ends a node that is asked to.
func (g *group) leave(m *member) {
	g.forget(m)
	m.end(true)
	m.door.close()
}

func (g *group) forget(m *member) {
	rest := g.others(m)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = rest
}

// kill makes it for all others as if the node's process had been killed.
func (g *group) kill(m *member) {
	g.forget(m)
	m.door.close()
	m.line.cutOff()
	g.dead = append(g.dead, m)
}

// freeze makes it for all others as if the node's process had been stopped, until
// it is thawed.
func (m *member) freeze() {
	m.door.jam()
	m.line.hold(nil)
}

func (m *member) thaw() {
	m.line.restore()
	m.door.unjam()
}

// until waits for a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	giveUp := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(giveUp) {
			require.Failf(t, "waited in vain", "for %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// leader waits until all of the nodes say that the same one of them leads, in
// the same term, and that one does.
func leader(t testing.TB, nodes []*member) (leads *member) {
	t.Helper()
	until(t, "all to agree on who leads", func() bool {
		leads = agreed(nodes)
		return leads != nil
	})
	return leads
}

func agreed(nodes []*member) (leads *member) {
	first := nodes[0].Backend().Status()
	for _, m := range nodes {
		st := m.Backend().Status()
		switch {
		case st.Serving != nil || st.Leader == 0 || st.Leader != first.Leader || st.Term != first.Term:
			return nil
		case m.Backend().Leading() != (st.Leader == m.id()):
			return nil
		case m.Backend().Leading():
			leads = m
		}
	}
	return leads
}

func (m *member) id() uint64 { return m.Backend().MemberID() }

func (g *group) leader() *member {
	g.t.Helper()
	return leader(g.t, g.all())
}

func put(key, value string) *backend.Txn {
	return &backend.Txn{Then: []backend.Op{{Put: &backend.PutRequest{Key: []byte(key), Value: []byte(value)}}}}
}

// mustPut writes at a node that leads, and returns the revision.
func mustPut(t testing.TB, m *member, key, value string) int64 {
	t.Helper()
	r, err := m.Backend().Txn(t.Context(), put(key, value), true)
	require.NoError(t, err)
	return r.Revision
}

// get reads a key at a node; "" is a key that does not exist.
func get(ctx context.Context, m *member, key string, linearizable bool) (value string, revision int64, err error) {
	r, err := m.Backend().Range(ctx, &backend.RangeRequest{KeyRange: backend.KeyRange{Key: []byte(key)}}, linearizable)
	if err != nil {
		return "", 0, err
	}
	if len(r.Records) > 0 {
		value = string(r.Records[0].Value)
	}
	return value, r.Revision, nil
}

func requireGet(t testing.TB, m *member, key, want string) {
	t.Helper()
	value, _, err := get(t.Context(), m, key, true)
	require.NoError(t, err, "at %s", m.name)
	require.Equal(t, want, value, "at %s", m.name)
}

// turnedAway: the write certainly did not take effect since its node does not lead.
func turnedAway(err error) bool {
	return errors.Is(err, backend.ErrNotLeader) || errors.Is(err, backend.ErrNotServing)
}

// report prints how long something took; nothing depends on it.
func report(t testing.TB, what string, since time.Time) {
	t.Logf("%s: %s", what, time.Since(since).Round(time.Millisecond))
}
