package node

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sqlbrain/sqlbrain/server/cluster/link"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/server/timing"
)

// Join makes this process a member, and its replica a replica that is up to date.
// The caller continues with Start, once the peer URLs are served.
func Join(ctx context.Context, cfg Config) (_ *Node, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	n := &Node{
		cfg: cfg, log: cfg.Logger, start: time.Now(), role: semaphore.NewWeighted(1),
		changed: make(chan struct{}), leadership: make(chan struct{}),
		tablePolls: time.NewTimer(timing.TablePoll),
	}
	close(n.leadership)
	n.working, n.closed = context.WithCancel(context.Background())
	certificate, err := link.NewCertificate(cfg.PeerTLS, cfg.Logger)
	if err != nil {
		return nil, err
	}
	n.members, err = member.Join(ctx, member.Config{
		Store: cfg.Store, Name: cfg.Name, PeerURLs: cfg.PeerURLs, ClientURLs: cfg.ClientURLs, Version: cfg.Version,
		ElectionTimeout: cfg.ElectionTimeout, Certificate: certificate, Force: cfg.ForceJoin, Temporary: cfg.Temporary,
		Logger: cfg.Logger, Registerer: cfg.Registerer,
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
	cfg.Replica.Name, cfg.Replica.Leadership, cfg.Replica.CommitFailed = cfg.Name, n, n.members.CommitFailed
	if n.replica, err = replica.OpenFollower(ctx, cfg.Store, cfg.Replica); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.replica.Close(ctx))
		}
	}()
	n.security = link.NewSecurity(link.SecurityConfig{
		Certificate: certificate, Members: n.members, Logger: cfg.Logger,
	})
	n.pool = link.NewPool(link.Config{ClusterID: n.replica.ClusterID(), Security: n.security, Logger: cfg.Logger,
		Stats: cfg.PeerStats, Dial: cfg.Dial})
	if n.metrics, err = newMetrics(cfg.Registerer, n.pool.Outcomes(), n.security.Rejections()); err != nil {
		return nil, errors.Join(err, n.pool.Close())
	}
	return n, nil
}

// Start lets the node campaign and follow; Resign and Close end that.
func (n *Node) Start() {
	working := n.working
	n.members.PiggybackRead(n.piggybackRead)
	n.replica.Losses.Tell(n.reportLoss)
	n.members.Campaign(n.becomeLeader, n.observed)
	n.workers.Go(func() { n.follow(working) })
	n.workers.Go(func() { n.pollTable(working) })
	n.workers.Go(func() { n.cutOff(working) })
	n.workers.Go(func() { n.watchMembership(working) })
	n.workers.Go(func() { n.revokePeers(working) })
	n.workers.Go(func() { n.probePeers(working) })
}

// watchMembership stops the node from serving once it is no longer a member. A database that lost its
// newest commits may also have lost that this process joined. Then the node may be all that knows what
// was lost, so that it compares what it has seen with the table.
func (n *Node) watchMembership(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-n.members.Ended():
	}
	_ = n.replica.StopServing(n.members.Err())
	if n.role.Acquire(ctx, 1) == nil { // what it shows does not change any longer
		defer n.role.Release(1)
		n.replica.FinalDivergenceCheck(ctx)
	}
}

// Resign hands the leadership over, if this node has it, and stands for it no
// more. The node continues as a follower.
func (n *Node) Resign() { n.members.Resign() }

// Close ends the node, within ctx as far as the database is needed. The store stays
// open.
func (n *Node) Close(ctx context.Context) error {
	n.Resign()
	n.closed()
	n.workers.Wait()
	err := errors.Join(n.members.Leave(ctx), n.replica.Close(ctx), n.pool.Close())
	n.metrics.withdraw()
	return err
}
