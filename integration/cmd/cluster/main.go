// Command cluster runs three nodes of sqlbrain on this machine, over a MariaDB or
// MySQL that it starts and throws away, until it is interrupted. It is what the
// integration tests start, to be looked at and played with.
//
// With SQLBRAIN_TEST_MYSQL_URL=mysql://user:password@host:port/ it makes a
// database on that server, which is dropped at the end; with
// SQLBRAIN_INTEGRATION_TARGET=etcd the nodes are etcd's.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// ports are those of etcd's own example of a local cluster.
var ports = []int{2379, 22379, 32379}

func main() {
	// They remove what they built and started, as they do after tests.
	os.Exit(harness.Main(command{}).Run())
}

type command struct{}

// Run runs the cluster until it is interrupted, and returns the exit code.
func (command) Run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(func(t *terminal) {
		fmt.Println("Starting three nodes …")
		c := harness.StartCluster(t, harness.ClusterConfig{Ports: ports})
		tell(c)
		<-ctx.Done()
		fmt.Println("\nStopping …")
		for n := range c.Size() {
			if c.Node(n).Running() {
				c.Stop(n)
			}
		}
	})
}

func tell(c *harness.Cluster) {
	var hosts []string
	for n := range c.Size() {
		hosts = append(hosts, c.Node(n).Host())
		fmt.Printf("  %s  %s  process %d  log %s\n", c.Node(n).Name(), c.Node(n).Endpoint(), c.Node(n).Process().ID(),
			c.Node(n).Process().LogPath())
	}
	if c.Datastore() != "" {
		fmt.Printf("  database  %s\n", c.Datastore())
	}
	all := strings.Join(hosts, ",")
	fmt.Printf(`
Try, in another terminal:
  etcdctl --endpoints %[1]s put hello world
  etcdctl --endpoints %[1]s endpoint status -w table
  etcdctl --endpoints %[2]s watch --prefix "" &
  kill -9 %[3]d        # the leader: the others go on
Ctrl-C stops everything.
`, all, hosts[len(hosts)-1], c.Node(c.Leader()).Process().ID())
}
