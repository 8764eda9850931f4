package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/stats"

	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/server/election"
	"github.com/sqlbrain/sqlbrain/server/membership"
	"github.com/sqlbrain/sqlbrain/server/peer"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Config configures Join. Store and Name are needed.
type Config struct {
	Store   sqlstore.Store
	Name    string
	Version string
	// ForceJoin lets this process take the place of a live member of that name.
	ForceJoin bool
	// PeerURLs are where the other members reach this one, ClientURLs where clients
	// do.
	PeerURLs, ClientURLs []string
	// PeerTLS names the files of the certificate for connections between members; if it
	// is empty, the node makes one.
	PeerTLS tlsfiles.Config
	// PeerInsecure allows connections between members without certificates.
	PeerInsecure bool
	// PeerStats observes the calls of other members; nil: nothing does.
	PeerStats stats.Handler
	// LeaseDuration, RenewDeadline and RetryPeriod are the lock row's, as in
	// client-go; see package election.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration

	// deathSilence is for how long a leader that refuses connections must leave
	// challenges unanswered; 240 ms.
	deathSilence time.Duration

	Backend    backend.Config // Name and Leadership are set by Join
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Node is one node of a cluster. Its methods may be called from any goroutine.
type Node struct {
	cfg      Config
	log      *slog.Logger
	members  *membership.Registry
	backend  *backend.Backend
	security *peer.Security
	pool     *peer.Pool
	elector  *election.Elector

	// role is held while the node leads, or changes what it knows as a follower.
	role sync.Mutex
	// locked: this node has the lock, and is to lead; reading ends what it
	// asked the table before, as a follower, and may wait for yet.
	locked  atomic.Bool
	reading atomic.Pointer[context.CancelFunc]
	heard   atomic.Int64 // when the leader gave a sign last, since start
	fed     atomic.Bool  // a feed worked since the last suspicion
	start   time.Time
	metrics *metrics

	suspicions chan suspicion // investigate takes them; one slot

	campaigning, working context.Context
	resigned             context.CancelFunc // ends campaigning
	closed               context.CancelFunc // ends everything else

	mu         sync.Mutex
	holder     uint64        // who has the lock, 0 if nobody
	changed    chan struct{} // closed, and replaced, when holder changes
	leadership chan struct{} // closed when the leadership of the moment ends

	campaign, workers sync.WaitGroup
}

// Join makes this process a member, and its backend a replica that is up to date.
// The caller goes on with Start, once the peer URLs are served.
func Join(ctx context.Context, cfg Config) (_ *Node, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.deathSilence = cmp.Or(cfg.deathSilence, deathSilence)
	n := &Node{
		cfg: cfg, log: cfg.Logger, start: time.Now(),
		changed: make(chan struct{}), leadership: make(chan struct{}), suspicions: make(chan suspicion, 1),
	}
	close(n.leadership)
	n.campaigning, n.resigned = context.WithCancel(context.Background())
	n.working, n.closed = context.WithCancel(context.Background())
	n.metrics = newMetrics(cfg.Registerer)
	defer func() {
		if err != nil {
			n.metrics.unregister()
		}
	}()
	certificate, err := peer.NewCertificate(cfg.PeerTLS, cfg.Logger)
	if err != nil {
		return nil, err
	}
	n.members, err = membership.Join(ctx, membership.Config{
		Store: cfg.Store, Name: cfg.Name, PeerURLs: cfg.PeerURLs, ClientURLs: cfg.ClientURLs, Version: cfg.Version,
		Certificate: certificate, Force: cfg.ForceJoin, Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	if err != nil {
		return nil, err
	}
	// At once, because a member that does not answer challenges can be replaced.
	n.workers.Go(func() { n.members.Run(n.working) })
	defer func() {
		if err != nil {
			n.closed()
			n.workers.Wait()
			err = errors.Join(err, n.members.Leave(context.WithoutCancel(ctx)))
		}
	}()
	cfg.Backend.Name, cfg.Backend.Leadership = cfg.Name, n
	if n.backend, err = backend.OpenReplica(ctx, cfg.Store, cfg.Backend); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.backend.Close(ctx))
		}
	}()
	n.security = peer.NewSecurity(peer.SecurityConfig{
		Certificate: certificate, Members: roster{n.members}, Insecure: cfg.PeerInsecure, Logger: cfg.Logger,
	})
	n.pool = peer.NewPool(peer.Config{ClusterID: n.backend.ClusterID(), Security: n.security, Logger: cfg.Logger, Stats: cfg.PeerStats})
	n.metrics.register(n.pool.Outcomes())
	n.metrics.register(n.security.Rejections())
	n.elector, err = election.New(election.Config{
		Store: cfg.Store, Identity: identityOf(n.backend.MemberID()),
		LeaseDuration: cfg.LeaseDuration, RenewDeadline: cfg.RenewDeadline, RetryPeriod: cfg.RetryPeriod,
		Lead: n.lead, Observed: n.observed,
		Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	if err != nil {
		return nil, errors.Join(err, n.pool.Close())
	}
	return n, nil
}

// Start lets the node campaign and follow; Resign and Close end that.
func (n *Node) Start() {
	campaigning, working := n.campaigning, n.working
	n.campaign.Go(func() { n.elector.Run(campaigning) })
	n.workers.Go(func() { n.follow(working) })
	n.workers.Go(func() { n.look(working) })
	n.workers.Go(func() { n.cutOff(working) })
	n.workers.Go(func() { n.investigate(working) })
	n.workers.Go(func() { n.watchMembership(working) })
	n.workers.Go(func() { n.observe(working) })
	n.workers.Go(func() { n.revokePeers(working) })
	n.workers.Go(func() { n.probePeers(working) })
}

// watchMembership stops the node from serving once it is no member any more.
func (n *Node) watchMembership(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-n.members.Ended():
	}
	n.backend.StopServing(n.members.Err())
	n.resigned()
}

// Resign hands the leadership over, if this node has it, and stands for it no
// more. The node goes on as a follower.
func (n *Node) Resign() {
	n.resigned()
	n.campaign.Wait()
}

// Close ends the node, within ctx as far as the database is needed. The store stays
// open.
func (n *Node) Close(ctx context.Context) error {
	n.Resign()
	n.closed()
	n.workers.Wait()
	err := errors.Join(n.members.Leave(ctx), n.backend.Close(ctx), n.pool.Close())
	n.metrics.unregister()
	return err
}

// Backend returns the node's backend.
func (n *Node) Backend() *backend.Backend { return n.backend }

// Members returns the cluster's members.
func (n *Node) Members() *membership.Registry { return n.members }

// identityOf is how a member names itself in the lock row.
func identityOf(id uint64) string { return strconv.FormatUint(id, 16) }

func memberOf(identity string) (uint64, error) {
	if identity == "" {
		return 0, nil
	}
	id, err := strconv.ParseUint(identity, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("cluster: %q in the lock row is no member", identity)
	}
	return id, nil
}
