package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
	"github.com/sqlbrain/sqlbrain/server"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	clusternode "github.com/sqlbrain/sqlbrain/server/cluster/node"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// servedNode is what the server serves: a replica that has its database to itself, or
// one node of a cluster.
type servedNode struct {
	node    *replica.Replica
	cluster *clusternode.Node // nil with SQLite
}

// openReplica opens the node. With SQLite it leads already; in a cluster it campaigns
// and follows once start was called.
func openReplica(ctx context.Context, c *config.Config, dialect string, store sqlstore.Store) (*servedNode, error) {
	cfg := c.Node
	if !clustered(dialect) {
		c.Replica.Exclusive = true
		if len(cfg.PeerURLs) > 0 || cfg.PeerTLS.CertFile != "" {
			cfg.Logger.Warn("SQLite has one server: the settings for peers have no effect, except that member list shows its " +
				"peer URLs")
		}
		c.Server.PeerURLs = firstOf(cfg.PeerURLs, c.Server.PeerURLs)
		b, err := replica.OpenLeader(ctx, store, c.Replica)
		return &servedNode{node: b}, err
	}
	if err := repair.RefuseUnfinished(ctx, store); err != nil {
		return nil, err
	}
	cfg.Store, cfg.Replica = store, c.Replica
	cfg.PeerURLs = firstOf(cfg.PeerURLs, c.Server.PeerURLs)
	cfg.ClientURLs = firstOf(c.Server.AdvertiseClientURLs, c.Server.ListenClientURLs)
	n, err := clusternode.Join(ctx, cfg)
	if errors.Is(err, member.ErrRunning) {
		err = fmt.Errorf("%w: stop it, give this one another --name, or take its place with --force-join", err)
	}
	if err != nil {
		return nil, err
	}
	return &servedNode{node: n.Replica(), cluster: n}, nil
}

// clustered reports whether servers can share a database of this dialect.
func clustered(dialect string) bool { return dialect != sqlstore.DialectSQLite }

func firstOf(lists ...[]string) []string {
	for _, l := range lists {
		if len(l) > 0 {
			return l
		}
	}
	return nil
}

// connect gives the server access to the cluster.
func (n *servedNode) connect(cfg *server.Config) {
	if n.cluster == nil {
		return
	}
	cfg.Members = n.cluster.Members()
	cfg.PeerCredentials = n.cluster.PeerCredentials()
	cfg.PeerNode = clusternode.Peer{Node: n.cluster}
	cfg.Router = clusternode.Connection{Node: n.cluster}
	cfg.Mover = n.cluster
	cfg.Figures = n.cluster.Figures
}

// start lets the node take part in its cluster, once clientURLs are listened on.
func (n *servedNode) start(ctx context.Context, clientURLs, advertised []string) error {
	if n.cluster == nil {
		return nil
	}
	if len(advertised) == 0 { // ports that the system chose are known now
		if err := n.cluster.Members().Advertise(ctx, clientURLs); err != nil {
			return err
		}
	}
	n.cluster.Start()
	return nil
}

// resign hands the leadership over, while the server still serves.
func (n *servedNode) resign() {
	if n.cluster != nil {
		n.cluster.Resign()
	}
}

func (n *servedNode) close(ctx context.Context) error {
	if n.cluster != nil {
		return n.cluster.Close(ctx)
	}
	return n.node.Close(ctx)
}
