package harness

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// ClusterConfig says what to start. The zero value is three nodes on a private database
// server.
type ClusterConfig struct {
	// Etcd starts etcd, whatever the target is.
	Etcd bool
	// Product selects the database server to start for the cluster. If it is empty, any
	// product will do.
	Product enginetest.Product
	// Size is the number of nodes, 3 if it is 0.
	Size int
	// Ports, if there are any, are the client ports of the nodes; each peer port is
	// the next one. Otherwise any port that is free.
	Ports []int
	// Network puts proxies between the nodes, and between them and the database.
	Network bool
	// Places, if there are any, are those of the nodes.
	Places []Place
	// Datastore, if set, returns the URL of node i's existing database, and no server is
	// started. It must not be combined with Network or etcd.
	Datastore func(i int) string
	// Extra are flags for every node.
	Extra []string
	// Patient nodes are for tests that judge answers and not times: however busy the machine
	// is, they do not replace a leader that lives, and do not give a request up.
	Patient bool
	// Prepare, if set, is called with the URL of the empty database before a node
	// is started; not with etcd.
	Prepare func(datastore string)
}

// Cluster is a running cluster. Its methods end the test when they fail, so only the
// test's own goroutine may call them.
type Cluster struct {
	t           testing.TB
	etcd        bool
	datastore   string             // without proxies; empty with etcd
	perNode     func(i int) string // nil: all have the same
	directories []string           // etcd's
	nodes       []*Node
	database    *enginetest.Server // nil if it is not ours to kill
	network     *Network           // nil without
}

// StartCluster starts a cluster on an empty database, and returns when every node
// serves. It skips t if no engine is available. If the environment names a server,
// StartCluster uses it, and Database is nil.
func StartCluster(t testing.TB, cfg ClusterConfig) *Cluster {
	t.Helper()
	switch {
	case len(cfg.Ports) > 0:
		cfg.Size = len(cfg.Ports)
	case cfg.Size == 0:
		cfg.Size = 3
	}
	c := &Cluster{t: t, etcd: cfg.Etcd || TargetIsEtcd()}
	if !c.etcd {
		switch {
		case cfg.Datastore != nil:
			c.datastore, c.perNode = cfg.Datastore(0), cfg.Datastore
		case cfg.Product != "":
			c.database = cfg.Product.StartServer(t)
			c.datastore = c.database.URL()
		case enginetest.ServerGiven():
			c.datastore = enginetest.Database(t)
		default:
			c.database = enginetest.Any().StartServer(t)
			c.datastore = c.database.URL()
		}
		if cfg.Prepare != nil {
			cfg.Prepare(c.datastore)
		}
	}
	if cfg.Network {
		c.network = startNetwork(t, cfg.Size, c.datastore)
	}
	members, all := c.members(cfg)
	for i, m := range members {
		m.InitialCluster = all
		c.nodes = append(c.nodes, NewMember(t, c.etcd, c.datastoreOf(i), m, c.flags(cfg)...))
	}
	// Start all nodes before waiting for any: etcd's members wait for each other, and
	// sqlbrain's members must find the database empty at the same time.
	for i := range c.nodes {
		c.StartWithoutWaiting(i)
	}
	for _, n := range c.nodes {
		n.AwaitReady()
	}
	return c
}

func (c *Cluster) flags(cfg ClusterConfig) []string {
	switch {
	case !cfg.Patient:
		return cfg.Extra
	case c.etcd:
		return append([]string{"--heartbeat-interval=500", "--election-timeout=5000"}, cfg.Extra...)
	default:
		return append([]string{
			"--leader-answer-timeout=5m",
			"--request-timeout=2m", "--stop-timeout=2m",
		}, cfg.Extra...)
	}
}

// members returns the nodes' names and peer URLs, and all of them in one line.
func (c *Cluster) members(cfg ClusterConfig) (members []Member, all string) {
	var urls []string
	for i := range cfg.Size {
		client, port := enginetest.FreePort(c.t), enginetest.FreePort(c.t)
		if i < len(cfg.Ports) {
			client, port = cfg.Ports[i], cfg.Ports[i]+1
		}
		m := Member{Name: fmt.Sprintf("node%d", i), ClientPort: client}
		if i < len(cfg.Places) {
			m.Place = cfg.Places[i]
		}
		m.PeerURL = "http://" + m.Place.at(port)
		m.AdvertisedPeerURL = m.PeerURL
		if c.network != nil {
			m.AdvertisedPeerURL = "http://" + c.network.join(i, port)
		}
		urls = append(urls, m.Name+"="+m.AdvertisedPeerURL)
		members = append(members, m)
	}
	return members, strings.Join(urls, ",")
}

// DataDirs are the directories of etcd's members; none with sqlbrain.
func (c *Cluster) DataDirs() []string { return c.directories }

// datastoreOf returns the database URL or data directory that node i is configured with.
func (c *Cluster) datastoreOf(i int) string {
	switch {
	case c.etcd:
		c.directories = append(c.directories, filepath.Join(c.t.TempDir(), "etcd"))
		return c.directories[i]
	case c.perNode != nil:
		return c.perNode(i)
	case c.network != nil:
		return c.network.urls[i]
	default:
		return c.datastore
	}
}

// Datastore is the database's URL, without a proxy; empty with etcd.
func (c *Cluster) Datastore() string { return c.datastore }

// Database is the database server; nil if it is etcd, or not ours.
func (c *Cluster) Database() *enginetest.Server { return c.database }

// Network is the set of proxies between the nodes and the database, nil without proxies.
func (c *Cluster) Network() *Network { return c.network }

// Size is the number of nodes, running or not.
func (c *Cluster) Size() int { return len(c.nodes) }

// Node returns a node, which may be down. Only the cluster's methods may start, stop
// and kill it, because they notify the network.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// Kill ends a node at once (SIGKILL).
func (c *Cluster) Kill(i int) { c.t.Helper(); c.nodes[i].Kill(); c.left(i) }

// Stop ends a node in order (SIGTERM).
func (c *Cluster) Stop(i int) { c.t.Helper(); c.nodes[i].Stop(); c.left(i) }

func (c *Cluster) left(i int) {
	if c.network != nil {
		c.network.went(i)
	}
}

// Start starts a node that has ended, and returns when it serves.
func (c *Cluster) Start(i int) {
	c.t.Helper()
	c.StartWithoutWaiting(i)
	c.nodes[i].AwaitReady()
}

// StartWithoutWaiting starts a node that has ended.
func (c *Cluster) StartWithoutWaiting(i int) {
	c.t.Helper()
	c.nodes[i].StartWithoutWaiting()
	if c.network != nil {
		c.network.came(i, c.nodes[i].Process().ID())
	}
}

// MoveLeader has node leader, which leads, hand the leadership to another one.
func (c *Cluster) MoveLeader(ctx context.Context, leader int) error {
	client, err := NewClient(c.nodes[leader].Endpoint())
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // it has its answers
	members, err := client.MemberList(ctx)
	if err != nil {
		return err
	}
	for _, m := range members.Members {
		if m.ID != members.Header.MemberId {
			_, err = client.MoveLeader(ctx, m.ID)
			return err
		}
	}
	return errors.New("there is no other node")
}

// Endpoints are the client URLs of all nodes.
func (c *Cluster) Endpoints() (urls []string) {
	for _, n := range c.nodes {
		urls = append(urls, n.Endpoint())
	}
	return urls
}

// Client returns a client of all nodes, closed when the test ends.
func (c *Cluster) Client() *clientv3.Client {
	c.t.Helper()
	return ClientOf(c.t, c.Endpoints()...)
}

// leaderWait bounds the time until all nodes know the leader.
const leaderWait = eventually.Deadline

// askWait bounds the answer of one node, which may be frozen.
const askWait = 3 * time.Second

// Leader returns the leader: the node that reports the newest term and itself as its
// leader. It waits for one.
func (c *Cluster) Leader() int {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), leaderWait)
	defer cancel()
	leader, err := c.AwaitLeader(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	return leader
}

// AwaitLeader is Leader for any goroutine; it gives up when ctx ends.
func (c *Cluster) AwaitLeader(ctx context.Context) (int, error) {
	var client *clientv3.Client
	if err := eventually.Poll(ctx, func(context.Context) (err error) { // a user gets no token without a leader
		client, err = NewClient(c.Endpoints()...)
		return err
	}); err != nil {
		return 0, err
	}
	defer client.Close() //nolint:errcheck // only status was asked for
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		if i := c.leader(ctx, client); i >= 0 {
			return i, nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return 0, errors.Join(errors.New("no node says that it leads"), ctx.Err())
		}
	}
}

func (c *Cluster) leader(ctx context.Context, client *clientv3.Client) int {
	found, term := -1, uint64(0)
	for i, n := range c.nodes {
		if !n.Running() {
			continue
		}
		ask, cancel := context.WithTimeout(ctx, askWait)
		s, err := client.Status(ask, n.Endpoint())
		cancel()
		switch {
		case err != nil || s.RaftTerm < term:
		case s.Leader != 0 && s.Leader == s.Header.MemberId:
			found, term = i, s.RaftTerm
		case s.RaftTerm > term:
			found, term = -1, s.RaftTerm
		}
	}
	return found
}
