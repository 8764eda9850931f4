package node

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/stats"

	"github.com/sqlbrain/sqlbrain/server/cluster/link"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/loglimit"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Config configures Join. Store and Name are needed; DefaultConfig has the rest.
type Config struct {
	Store   sqlstore.Store
	Name    string
	Version string
	// ForceJoin lets this process take the place of a live member of that name.
	ForceJoin bool
	// Temporary removes the member from the cluster when the node is closed.
	Temporary bool
	// PeerURLs are where the other members reach this one, ClientURLs where clients
	// do.
	PeerURLs, ClientURLs []string
	// PeerTLS names the files of the certificate for connections between members; if it
	// is empty, the node makes one.
	PeerTLS tlsfiles.Config
	// Dial connects to the peer URLs of other members; nil: the operating system's network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// PeerStats observes the calls of other members; nil: nothing does.
	PeerStats stats.Handler
	// ElectionTimeout is how long a silent leader may leave a challenge unanswered; see member.Config.
	ElectionTimeout time.Duration

	Replica    replica.Config // Name and Leadership are set by Join
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// DefaultConfig returns the default configuration.
func DefaultConfig() Config {
	return Config{
		Name:            "default",
		ElectionTimeout: timing.Answer,
		Replica:         replica.DefaultConfig(),
	}
}

// Node is one node of a cluster. Its methods may be called from any goroutine.
type Node struct {
	cfg      Config
	log      *slog.Logger
	members  *member.Registry
	replica  *replica.Replica
	security *link.Security
	pool     *link.Pool

	// role is held while the node leads, or changes what it knows as a follower. Its weight
	// is 1. It is not a mutex, because a leadership lasts and waiting for its end can be cancelled.
	role *semaphore.Weighted
	// locked: this node has the lock, and is to lead; reading ends what it
	// asked the table before, as a follower, and may wait for yet.
	locked  atomic.Bool
	reading atomic.Pointer[context.CancelFunc]
	heard   atomic.Int64 // when the leader gave a sign last, since start
	start   time.Time
	metrics *metrics

	unreachable loglimit.Log // for calls that cannot be forwarded

	tablePolls *time.Timer // pollTable waits for it

	working context.Context
	closed  context.CancelFunc // ends working

	mu         sync.Mutex
	changed    chan struct{} // closed, and replaced, when another member has the lock
	leadership chan struct{} // closed when the current leadership ends

	workers sync.WaitGroup
}

// Replica returns the node's replica.
func (n *Node) Replica() *replica.Replica { return n.replica }

// Members returns the cluster's members.
func (n *Node) Members() *member.Registry { return n.members }

// current returns who has the lock, and a channel that is closed when that, or
// whether this node leads, changes.
func (n *Node) current() (holder uint64, changed <-chan struct{}) {
	n.mu.Lock()
	changed = n.changed
	n.mu.Unlock()
	return n.members.Holder(), changed
}
