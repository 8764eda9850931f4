package harness

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/process"
)

const (
	readyWait = eventually.Deadline
	readyPoll = 20 * time.Millisecond
)

// Node is one server with its data. It can be stopped and restarted. Its methods end
// the test when they fail, so only the test's own goroutine may call them.
type Node struct {
	t         testing.TB
	datastore string
	etcd      bool
	extra     []string
	port      int
	peerPort  int // etcd only, where member is nil
	member    *Member
	process   *Process
}

// Member is what makes a node one of several.
type Member struct {
	Name       string
	ClientPort int
	Place      Place
	// PeerURL is the URL at which it listens for peers. AdvertisedPeerURL is the URL to
	// which peers connect, for example a proxy.
	PeerURL, AdvertisedPeerURL string
	// InitialCluster names all members and their advertised URLs, as
	// name=url,name=url. Only etcd wants it: the others find each other in the
	// database.
	InitialCluster string
}

// NewMember returns a node of a cluster, which is not started yet. The datastore
// is the database's URL, or etcd's directory.
func NewMember(t testing.TB, etcd bool, datastore string, m Member, extra ...string) *Node {
	t.Helper()
	return &Node{t: t, datastore: datastore, etcd: etcd, extra: extra, port: m.ClientPort, member: &m}
}

// Name is the member's name; empty where the node is the only one.
func (n *Node) Name() string {
	if n.member == nil {
		return ""
	}
	return n.member.Name
}

// Running reports whether the node was started and has not ended.
func (n *Node) Running() bool { return n.process != nil && n.process.Running() }

// StartNode starts the target on an empty database of the engine, with extra
// flags, and returns when it serves.
func StartNode(t testing.TB, e Engine, extra ...string) *Node {
	t.Helper()
	return StartNodeOn(t, e.Datastore(t), extra...)
}

// StartNodeOn is StartNode on a datastore URL.
func StartNodeOn(t testing.TB, datastore string, extra ...string) *Node {
	t.Helper()
	n := &Node{t: t, datastore: datastore, etcd: TargetIsEtcd(), extra: extra}
	n.Start()
	return n
}

// StartEtcd starts a real etcd, whatever the target is.
func StartEtcd(t testing.TB, extra ...string) *Node {
	t.Helper()
	n := &Node{t: t, datastore: t.TempDir(), etcd: true, extra: extra}
	n.Start()
	return n
}

// Start starts the node on the data and port it had, and returns when it serves.
func (n *Node) Start() {
	n.t.Helper()
	n.StartWithoutWaiting()
	n.AwaitReady()
}

// StartWithoutWaiting is Start that does not wait until the node serves.
func (n *Node) StartWithoutWaiting() {
	n.t.Helper()
	if n.port == 0 {
		n.port = enginetest.FreePort(n.t)
	}
	if !n.etcd {
		n.process = StartProcessWith(n.t, n.options(), Sqlbrain(n.t), n.Args()...)
		return
	}
	if n.peerPort == 0 {
		n.peerPort = enginetest.FreePort(n.t)
	}
	n.process = StartProcessWith(n.t, n.options(), Etcd(n.t), n.etcdArgs()...)
}

func (n *Node) options() process.Options { return process.Options{Network: n.place().Network} }

func (n *Node) place() Place {
	if n.member == nil {
		return Place{}
	}
	return n.member.Place
}

// Args are the arguments of sqlbrain for this node.
func (n *Node) Args() []string {
	args := []string{
		"serve",
		"--datastore", n.datastore,
		"--listen-client-urls", n.Endpoint(),
		"--advertise-client-urls", n.Endpoint(),
	}
	if m := n.member; m != nil {
		args = append(args,
			"--name", m.Name,
			"--listen-peer-urls", m.PeerURL,
			"--initial-advertise-peer-urls", m.AdvertisedPeerURL,
		)
	} else {
		args = append(args, "--listen-peer-urls", "")
	}
	return append(args, n.extra...)
}

func (n *Node) etcdArgs() []string {
	m := n.member
	if m == nil {
		peer := fmt.Sprintf("http://127.0.0.1:%d", n.peerPort)
		m = &Member{Name: "default", PeerURL: peer, AdvertisedPeerURL: peer, InitialCluster: "default=" + peer}
	}
	return append([]string{
		"--data-dir", n.datastore,
		"--name", m.Name,
		"--listen-client-urls", n.Endpoint(),
		"--advertise-client-urls", n.Endpoint(),
		"--listen-peer-urls", m.PeerURL,
		"--initial-advertise-peer-urls", m.AdvertisedPeerURL,
		"--initial-cluster", m.InitialCluster,
		"--log-level", "warn",
	}, n.extra...)
}

// AwaitReady returns when the node answers a linearizable Get.
func (n *Node) AwaitReady() {
	n.t.Helper()
	if err := n.Ready(); err != nil {
		n.t.Fatal(err)
	}
}

// Ready is AwaitReady for callers that can continue without the node.
func (n *Node) Ready() error {
	var c *clientv3.Client
	defer func() {
		if c != nil {
			closeClient(n.t, c)
		}
	}()
	return n.process.program.Await(context.Background(), readyWait, readyPoll, func(ctx context.Context) (err error) {
		if c == nil { // one with a user asks for a token first
			if c, err = NewClient(n.Endpoint()); err != nil {
				return err
			}
		}
		_, err = c.Get(ctx, "ready")
		return err
	})
}

// AwaitStorageVersion returns when the node reports its final storage version. An etcd
// on new data reports 3.5.0, or none, for some seconds.
func (n *Node) AwaitStorageVersion() {
	n.t.Helper()
	c := n.Client()
	eventually.Nil(n.t, readyWait, func(ctx context.Context) error {
		st, err := c.Status(ctx, n.Endpoint())
		if err == nil && (st.StorageVersion == "" || st.StorageVersion == "3.5.0") {
			err = fmt.Errorf("the storage version is %q", st.StorageVersion)
		}
		return err
	})
}

// Kill ends the node at once (SIGKILL).
func (n *Node) Kill() { n.t.Helper(); n.process.Kill(n.t) }

// Stop ends the node in order (SIGTERM).
func (n *Node) Stop() { n.t.Helper(); n.process.Stop(n.t) }

// Process is the node's running program.
func (n *Node) Process() *Process { return n.process }

// Endpoint is the node's client URL; it stays the same.
func (n *Node) Endpoint() string { return "http://" + n.place().at(n.port) }

// Client returns a client of the node that is closed when the test ends.
func (n *Node) Client() *clientv3.Client {
	n.t.Helper()
	return ClientOf(n.t, n.Endpoint())
}

// ClientOf returns a client of several endpoints that is closed when the test
// ends.
func ClientOf(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	c, err := NewClient(endpoints...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeClient(t, c) })
	return c
}

func closeClient(t testing.TB, c *clientv3.Client) {
	if err := c.Close(); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("close the client: %v", err)
	}
}

// NewClient returns a client with a quick reconnect, so that a restarted server
// is found at once. Its own retries are etcd's: reads are repeated, writes are
// not unless they were never sent.
func NewClient(endpoints ...string) (*clientv3.Client, error) {
	reconnect := grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2,
			MaxDelay: 200 * time.Millisecond},
		MinConnectTimeout: time.Second,
	}
	options := []grpc.DialOption{grpc.WithConnectParams(reconnect)}
	if Dial != nil {
		options = append(options, grpc.WithContextDialer(Dial))
	}
	return clientv3.New(clientv3.Config{
		Endpoints:          endpoints,
		DialTimeout:        5 * time.Second,
		DialOptions:        options,
		BackoffWaitBetween: 20 * time.Millisecond,
		Logger:             zap.NewNop(),
	})
}

// Etcdctl runs etcdctl against the node.
func (n *Node) Etcdctl(input string, args ...string) Output {
	n.t.Helper()
	return Run(n.t, eventually.Deadline, input, Etcdctl(n.t), n.EtcdctlArgs(args...)...)
}

// EtcdctlArgs returns the arguments of an etcdctl that talks to the node, with more patience than it has by itself: 2 s
// for a connection and a user's token, and 5 s for an answer.
func (n *Node) EtcdctlArgs(args ...string) []string {
	return append([]string{"--endpoints", n.Endpoint(), "--dial-timeout=2m", "--command-timeout=2m"}, args...)
}

// Host returns the host and port of the node's endpoint.
func (n *Node) Host() string {
	u, err := url.Parse(n.Endpoint())
	if err != nil {
		n.t.Fatal(err)
	}
	return u.Host
}
