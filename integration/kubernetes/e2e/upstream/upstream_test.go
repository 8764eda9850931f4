package upstream

import (
	"strings"
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/programs"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

const integration = "k8s.io/kubernetes/test/integration/"

// suites are the packages, with the tests of them that are run.
var suites = []struct {
	pkg   string
	tests []string
}{
	{"apimachinery", []string{
		"TestCheckFieldItemsInEmptyList", "TestWatchNamespaceEvent", "TestWatchRestartsIfTimeoutNotReached",
		"TestWebsocketWatchClientTimeout", "TestWatchClientTimeoutXXX",
	}},
	{"apiserver", []string{
		"TestListOptions", "TestListResourceVersion0", "TestAPIListChunking", "TestAPIListChunkingWithLabelSelector",
		"TestNameInFieldSelector", "TestWatchTransformCaching", "TestDedupOwnerReferences", "TestMaxResourceSize",
	}},
	{"etcd", []string{
		"TestOverlappingBuiltInResources", "TestOverlappingCustomResourceAPIService",
		"TestOverlappingCustomResourceCustomResourceDefinition", "TestCrossGroupStorage",
	}},
}

// TestIntegration: Kubernetes' integration tests pass on one node over SQLite, and
// through a follower of three over each database server.
func TestIntegration(t *testing.T) {
	programs.NeedsKubernetes(t)
	if harness.TargetIsEtcd() {
		t.Run("etcd", func(t *testing.T) { testSuites(t, harness.StartEtcd(t).Endpoint()) })
		return
	}
	t.Run("sqlite", func(t *testing.T) { testSuites(t, harness.StartNode(t, harness.SQLite).Endpoint()) })
	for _, p := range enginetest.Products() {
		t.Run(string(p)+"-follower", func(t *testing.T) {
			c := harness.StartCluster(t, harness.ClusterConfig{Product: p})
			leader := c.Leader()
			testSuites(t, c.Node((leader+1)%c.Size()).Endpoint())
			if now := c.Leader(); now != leader {
				t.Errorf("node %d leads now, not %d: it was not a follower all the time", now, leader)
			}
		})
	}
}

func testSuites(t *testing.T, endpoint string) {
	for _, s := range suites {
		t.Run(s.pkg, func(t *testing.T) {
			p := programs.Tests(t, integration+s.pkg)
			p.Env = append(p.Env, "KUBE_INTEGRATION_ETCD_URL="+endpoint, "TMPDIR="+t.TempDir())
			outcomes, err := p.Run(t.Context(), "^("+strings.Join(s.tests, "|")+")$", t.Output())
			if err != nil {
				t.Error(err)
			}
			if len(outcomes) != len(s.tests) {
				t.Errorf("%d tests ran, not %d", len(outcomes), len(s.tests))
			}
			for _, o := range outcomes {
				t.Run(o.Name, func(t *testing.T) {
					if o.Result != "pass" {
						t.Errorf("%q\n%s", o.Result, o.Output.Bytes())
					}
				})
			}
		})
	}
}
