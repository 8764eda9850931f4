package atwork

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Environment variables that set the size.
const (
	envNodes  = "SQLBRAIN_K8S_NODES"
	envPods   = "SQLBRAIN_K8S_PODS"
	envStores = "SQLBRAIN_K8S_STORES" // see stores
	// envReport is a directory for the tables.
	envReport = "SQLBRAIN_K8S_REPORT"
	// envProfile, if "1", takes CPU profiles of sqlbrain in the busy steps, for which
	// envReport must be set.
	envProfile = "SQLBRAIN_K8S_PROFILE"
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
	s := size{nodes: number(t, envNodes, 10), pods: number(t, envPods, 100)}
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

func number(t *testing.T, env string, usual int) int {
	t.Helper()
	s := os.Getenv(env)
	if s == "" {
		return usual
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is not a positive number", env, s)
	}
	return n
}

// storesWanted are the names of the stores to run on, in this order.
func storesWanted(t *testing.T) []string {
	t.Helper()
	s := os.Getenv(envStores)
	if s == "" {
		s = "etcd,sqlbrain"
	}
	names := strings.Split(s, ",")
	for _, n := range names {
		if stores[n] == nil {
			t.Fatalf("%s: no store %q", envStores, n)
		}
	}
	return names
}
