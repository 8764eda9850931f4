package atwork

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

var (
	nodes  = flag.Int("nodes", 10, "nodes of the cluster")
	pods   = flag.Int("pods", 100, "pods of the cluster")
	wanted = flag.String("stores", "etcd,sqlbrain", "what it runs on, in order, of etcd, sqlbrain, mysql, mariadb and sqlite")
)

// size is how large a cluster is.
type size struct {
	nodes, pods int
	// deployments share the pods, and namespaces the deployments, evenly.
	deployments, namespaces int
	// idle is how long nothing but heartbeats happens.
	idle time.Duration
	// patience bounds a step.
	patience time.Duration
}

const (
	podsPerNode       = 110 // a kubelet's default limit
	podsPerDeployment = 50
	deploymentsPerNS  = 10
)

func sizeOf(t *testing.T) size {
	t.Helper()
	s := size{nodes: *nodes, pods: *pods}
	s.deployments = max(4, s.pods/podsPerDeployment)
	s.namespaces = max(2, s.deployments/deploymentsPerNS)
	s.pods -= s.pods % s.deployments
	if s.pods == 0 || s.pods*2 > s.nodes*podsPerNode {
		t.Fatalf("%d pods do not fit on %d nodes twice, which an update may need", s.pods, s.nodes)
	}
	s.idle = 20 * time.Second
	if s.nodes >= 100 {
		s.idle = time.Minute
	}
	s.patience = 10*time.Minute + time.Duration(s.pods+s.nodes)*300*time.Millisecond
	return s
}

func (s size) replicas() int32 { return int32(s.pods / s.deployments) }

func (s size) String() string {
	return fmt.Sprintf("%d nodes, %d pods of %d deployments in %d namespaces", s.nodes, s.pods, s.deployments,
		s.namespaces)
}

// storesWanted are the names of the stores to run on, in this order.
func storesWanted(t *testing.T) []string {
	t.Helper()
	names := strings.Split(*wanted, ",")
	for _, n := range names {
		if stores[n] == nil {
			t.Fatalf("there is no store %q", n)
		}
	}
	return names
}
