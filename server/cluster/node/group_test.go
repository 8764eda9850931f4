package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/cluster/feed"
	"github.com/sqlbrain/sqlbrain/server/cluster/link"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// deadline ends a wait for something that does not come.
const deadline = eventually.Deadline

// For how long a leader may leave challenges unanswered. In a quick group, on a busy machine, that happens to a leader
// that lives: tests write with putAnywhere there. In a slow one a leader is replaced only if its address refuses
// connections.
const (
	quick = timing.Answer
	slow  = time.Hour
)

// group is the nodes of one cluster, in one process.
type group struct {
	t      testing.TB
	store  sqlstore.Store
	answer time.Duration
	log    *testLog

	mu      sync.Mutex
	members []*testNode // those that live
	dead    []*testNode
}

// testNode is a node, its server for peers, and what leads in and out of it.
type testNode struct {
	*Node
	t        testing.TB
	name     string
	line     *line
	registry *prometheus.Registry
	door     *door

	server *grpc.Server
	served chan error
	ended  sync.Once
}

// newGroup starts nodes called a, b, c and so on.
func newGroup(t testing.TB, store sqlstore.Store, answer time.Duration, n int) *group {
	t.Helper()
	g := &group{t: t, store: store, answer: answer, log: &testLog{t: t}}
	t.Cleanup(g.log.end)
	t.Cleanup(g.close)
	for i := range n {
		g.join(string(rune('a'+i)), freeAddress(t))
	}
	return g
}

// testLog writes to the output of a test until the test ends. gRPC does not wait for attempts
// to connect when a connection is closed, and these write to the log.
type testLog struct {
	t     testing.TB
	mu    sync.Mutex
	ended bool
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return len(p), nil
	}
	return l.t.Output().Write(p)
}

func (l *testLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// newMemory returns an empty store.
func newMemory(t testing.TB) sqlstore.Store {
	s := memstore.New()
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// join starts a node whose peers reach it at address.
func (g *group) join(name, address string, change ...func(*Config)) *testNode {
	g.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(g.t, err)
	m := &testNode{t: g.t, name: name, line: &line{Store: g.store}, registry: prometheus.NewRegistry(),
		served: make(chan error, 1)}
	m.door = newDoor(g.t, address, l.Addr().String())
	log := slog.New(slog.NewTextHandler(g.log, &slog.HandlerOptions{Level: slog.LevelInfo})).With("node", name)
	cfg := DefaultConfig()
	cfg.Store, cfg.Name, cfg.Version, cfg.PeerURLs = m.line, name, "test", []string{m.door.url()}
	cfg.ElectionTimeout = g.answer
	cfg.Replica.Logger, cfg.Logger, cfg.Registerer = log, log, m.registry
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
		grpc.UnaryInterceptor(link.CheckUnary(Peer{m.Node})), grpc.StreamInterceptor(link.CheckStream(Peer{m.Node})),
		grpc.WaitForHandlers(true),
	)
	feed.Register(m.server, Peer{m.Node}, nil)
	go func() { m.served <- m.server.Serve(l) }() // end waits for it
	m.Start()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = append(g.members, m)
	return m
}

// joinThree joins nodes called a, b and c.
func (g *group) joinThree(change func(*Config)) {
	g.t.Helper()
	for _, name := range []string{"a", "b", "c"} {
		g.join(name, freeAddress(g.t), change)
	}
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
func (m *testNode) end(heard bool) {
	m.ended.Do(func() {
		m.Resign()
		m.server.Stop()
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		if err := m.Close(ctx); heard {
			assert.NoError(m.t, err, "closing %s", m.name)
		}
		if err := <-m.served; !errors.Is(err, grpc.ErrServerStopped) { // it may have been stopped before it began
			assert.NoError(m.t, err)
		}
	})
}

// all returns the nodes that live.
func (g *group) all() []*testNode {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.members)
}

// others returns the nodes that live, but for m.
func (g *group) others(m *testNode) []*testNode {
	return slices.DeleteFunc(g.all(), func(o *testNode) bool { return o == m })
}

// leave ends a node that is asked to.
func (g *group) leave(m *testNode) {
	g.forget(m)
	m.end(true)
	m.door.close()
}

func (g *group) forget(m *testNode) {
	rest := g.others(m)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = rest
}

// kill makes it for all others as if the node's process had been killed.
func (g *group) kill(m *testNode) {
	g.forget(m)
	m.door.close()
	m.line.cutOff()
	g.dead = append(g.dead, m)
}

// freeze makes it for all others as if the node's process had been stopped, until
// it is thawed.
func (m *testNode) freeze() {
	m.door.jam()
	m.line.hold(nil)
}

func (m *testNode) thaw() {
	m.line.restore()
	m.door.unjam()
}

// leader waits until all of the nodes say that the same one of them leads, in
// the same term, and that one does.
func leader(t testing.TB, nodes []*testNode) (leads *testNode) {
	t.Helper()
	eventually.True(t, "all to agree on who leads", func() bool {
		leads = agreed(nodes)
		return leads != nil
	})
	return leads
}

func agreed(nodes []*testNode) (leads *testNode) {
	first := nodes[0].Replica().Status()
	for _, m := range nodes {
		st := m.Replica().Status()
		switch {
		case st.NotServing != nil || st.Leader == 0 || st.Leader != first.Leader || st.Term != first.Term:
			return nil
		case m.Replica().Leading() != (st.Leader == m.id()):
			return nil
		case m.Replica().Leading():
			leads = m
		}
	}
	return leads
}

func (m *testNode) id() uint64 { return m.Replica().MemberID() }

func (g *group) leader() *testNode {
	g.t.Helper()
	return leader(g.t, g.all())
}

func put(key, value string) *mvcc.Txn {
	return &mvcc.Txn{Then: []mvcc.Op{{Put: &mvcc.PutRequest{Key: []byte(key), Value: []byte(value)}}}}
}

// mustPut writes at a node that leads, and returns the revision.
func mustPut(t testing.TB, m *testNode, key, value string) int64 {
	t.Helper()
	r, err := m.Replica().Txn(t.Context(), auth.System, put(key, value), true)
	require.NoError(t, err)
	return r.Revision
}

// putAnywhere writes at the one of the nodes that leads, and returns the revision. It starts
// again if that one leads no longer.
func putAnywhere(t testing.TB, nodes []*testNode, key, value string) (rev int64) {
	t.Helper()
	eventually.Nil(t, deadline, func(ctx context.Context) error {
		r, err := leader(t, nodes).Replica().Txn(ctx, auth.System, put(key, value), true)
		if err == nil {
			rev = r.Revision
		}
		return err
	})
	return rev
}

// get reads a key at a node; "" is a key that does not exist.
func get(ctx context.Context, m *testNode, key string, linearizable bool) (value string, revision int64, err error) {
	return getAs(ctx, m, auth.System, key, linearizable)
}

func getAs(ctx context.Context, m *testNode, as auth.Permit, key string,
	linearizable bool) (value string, revision int64, err error) {
	r, err := m.Replica().Reader.Range(ctx, as, &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte(key)}},
		linearizable)
	if err != nil {
		return "", 0, err
	}
	if len(r.Records) > 0 {
		value = string(r.Records[0].Value)
	}
	return value, r.Revision, nil
}

func requireGet(t testing.TB, m *testNode, key, want string) {
	t.Helper()
	value, _, err := get(t.Context(), m, key, true)
	require.NoError(t, err, "at %s", m.name)
	require.Equal(t, want, value, "at %s", m.name)
}

// report prints how long something took; nothing depends on it.
func report(t testing.TB, what string, since time.Time) {
	t.Logf("%s: %s", what, time.Since(since).Round(time.Millisecond))
}
