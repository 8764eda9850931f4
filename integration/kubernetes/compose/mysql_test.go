package compose

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// TestMySQLProfile does what the head of docker-compose.yml says one may: it starts
// the profile, uses each node, and kills the leader. What follows a kill otherwise is chaos/cluster's.
func TestMySQLProfile(t *testing.T) {
	e := newEngine(t)
	p := newProject(t, e)
	services := databases["mysql"].nodes
	p.run(25*time.Minute, append([]string{"up", "--build", "--detach", "--wait", "--wait-timeout=600"}, services...)...)
	requireSchemaFirst(t, p, "mysql-migrate", services)
	require.Equal(t, []string{"1", "0", "object", "schema_migrations"}, strings.Fields(p.run(eventually.Deadline,
		"exec", "-T", "mysql", "mysql", "--host=127.0.0.1", "--user=root", "--password=development", "--batch",
		"--skip-column-names", "sqlbrain", "--execute="+schemaQuery+"; SHOW TABLES")))
	requireSound(t, p)
	nodes := connect(t, p, services)
	write := func(nodes []*node) { // until it is acknowledged, and read by all
		t.Helper()
		for _, n := range nodes {
			eventually.Nil(t, eventually.Deadline, func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
				defer cancel()
				_, err := n.client.Put(ctx, "k", n.service)
				return err
			})
			for _, reader := range nodes {
				eventually.Nil(t, eventually.Deadline, func(ctx context.Context) error {
					got, err := reader.client.Get(ctx, "k")
					if err == nil {
						require.Equal(t, n.service, string(got.Kvs[0].Value), reader.service)
					}
					return err
				})
			}
		}
	}
	write(nodes)
	leader, others := leaderOf(t, nodes)
	victim := p.container(leader.service).ID
	e.docker("kill", victim)
	write(others)
	require.Equal(t, 137, e.ended(victim), "it was not started again")
	e.docker("start", victim)
	write(nodes)
	p.run(eventually.Deadline, "stop", leader.service)
	require.Zero(t, e.ended(victim), "SIGTERM is an orderly end, after which it was not started again")
	require.NotContains(t, p.run(eventually.Deadline, "logs", "--no-color"), "that is not a setting")
}

// node is a container, and a client that knows it alone.
type node struct {
	service, endpoint string
	client            *clientv3.Client
}

// connect returns the nodes, at the addresses that they advertise to clients.
func connect(t *testing.T, p *project, services []string) []*node {
	t.Helper()
	members, err := harness.ClientOf(t, "http://127.0.0.1:"+p.env["N2_PORT"]).MemberList(t.Context())
	require.NoError(t, err)
	require.Len(t, members.Members, 3)
	var nodes []*node
	for i, service := range services {
		name := fmt.Sprintf("n%d", i+1)
		at := slices.IndexFunc(members.Members, func(m *pb.Member) bool { return m.Name == name })
		require.GreaterOrEqual(t, at, 0, "%s is not a member: %v", name, members.Members)
		m := members.Members[at]
		require.Equal(t, []string{"https://" + service + ":2380"}, m.PeerURLs)
		require.Equal(t, []string{"http://127.0.0.1:" + p.env["N"+name[1:]+"_PORT"]}, m.ClientURLs)
		n := &node{service: service, endpoint: m.ClientURLs[0], client: harness.ClientOf(t, m.ClientURLs...)}
		status, err := n.client.Status(t.Context(), n.endpoint)
		require.NoError(t, err)
		require.Equal(t, m.ID, status.Header.MemberId, "%s answers for another", n.endpoint)
		nodes = append(nodes, n)
	}
	return nodes
}

// leaderOf waits until the nodes agree on one of them that leads.
func leaderOf(t *testing.T, nodes []*node) (leader *node, others []*node) {
	t.Helper()
	eventually.Nil(t, eventually.Deadline, func(ctx context.Context) error {
		leader, others = nil, nil
		var led uint64
		for _, n := range nodes {
			s, err := n.client.Status(ctx, n.endpoint)
			if err != nil {
				return err
			}
			if s.Leader == 0 || led != 0 && s.Leader != led {
				return fmt.Errorf("%s is led by %x, others by %x", n.service, s.Leader, led)
			}
			if led = s.Leader; led == s.Header.MemberId {
				leader = n
			} else {
				others = append(others, n)
			}
		}
		if leader == nil {
			return errors.New("none of them leads")
		}
		return nil
	})
	return leader, others
}

// schemaQuery asks for what the stock tool wrote about the schema. Nodes, which may not, left that alone.
const schemaQuery = "SELECT version, dirty FROM schema_migrations"

// requireSchemaFirst demands that the stock tool made the schema before any node started.
func requireSchemaFirst(t *testing.T, p *project, migration string, services []string) {
	t.Helper()
	migrate := p.container(migration)
	require.Zero(t, migrate.State.ExitCode)
	for _, s := range services {
		require.True(t, migrate.State.FinishedAt.Before(p.container(s).State.StartedAt),
			"%s started before the schema was there", s)
	}
	require.Contains(t, p.run(eventually.Deadline, "logs", "--no-color", migration), "1/u object")
}

// requireSound asks doctor about the database, from where the nodes are.
func requireSound(t *testing.T, p *project) {
	t.Helper()
	out := p.run(eventually.Deadline, "run", "--rm", "--no-deps", "-T", "mysql-n1", "doctor")
	require.Contains(t, out, "innodb_flush_log_at_trx_commit", "it looked at what makes commits durable")
	require.NotContains(t, out, "FAIL")
	require.Equal(t, "sqlbrain "+p.env["VERSION"]+"\n",
		p.run(eventually.Deadline, "run", "--rm", "--no-deps", "-T", "mysql-n1", "--version"))
}
