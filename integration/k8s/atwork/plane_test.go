package atwork

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/k8s/internal/controlplane"
)

// plane is a running cluster, and what a client sees of it by watching.
type plane struct {
	size     size
	store    store
	api      *controlplane.APIServer
	client   *kubernetes.Clientset
	seen     informers.SharedInformerFactory
	programs []program
}

func startPlane(t *testing.T, sz size, s store) *plane {
	t.Helper()
	// An inconsistency that the API server finds between its cache and the store ends it.
	t.Setenv("KUBE_WATCHCACHE_CONSISTENCY_CHECKER", "true")
	p := &plane{size: sz, store: s, programs: s.programs}
	p.api = controlplane.StartAPIServer(t, controlplane.NewCredentials(t), controlplane.APIConfig{Store: s.endpoints})
	p.account("kube-apiserver", p.api.Process())

	// Rates and parallelism as a large cluster has them: what a client holds itself
	// to says nothing about the store. The locks are given time, as the machine may do
	// much else.
	patient := []string{"--leader-answer-timeout=60s"}
	p.account("kube-controller-manager", controlplane.StartControllerManager(t, p.api, append([]string{
		"--kube-api-qps=5000", "--kube-api-burst=5000",
		"--concurrent-deployment-syncs=20", "--concurrent-replicaset-syncs=20",
		// A machine that is busy with everything at once is late with heartbeats, and
		// pods of a node that was given up stay unready, as KWOK does not look after
		// them again. That leases are fresh is checked where nothing else is done.
		"--node-monitor-grace-period=10m",
	}, patient...)...))
	p.account("kube-scheduler", controlplane.StartScheduler(t, p.api, append([]string{
		"--kube-api-qps=5000", "--kube-api-burst=5000",
	}, patient...)...))
	p.account("kwok", controlplane.StartKWOK(t, p.api, controlplane.KWOKConfig{Parallelism: 16}))

	cfg := p.api.Config(controlplane.Admin)
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	var err error
	p.client, err = kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	p.watch(t)
	return p
}

func (p *plane) account(role string, process *harness.Process) {
	p.programs = append(p.programs, program{role, process.ID()})
}

// watch starts to follow pods, nodes, deployments and node leases.
func (p *plane) watch(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p.seen = informers.NewSharedInformerFactory(p.client, 0)
	t.Cleanup(func() { cancel(); p.seen.Shutdown() })
	p.seen.Core().V1().Pods().Informer()
	p.seen.Core().V1().Nodes().Informer()
	p.seen.Core().V1().Namespaces().Informer()
	p.seen.Apps().V1().Deployments().Informer()
	p.seen.Coordination().V1().Leases().Informer()
	p.seen.Start(ctx.Done())
	for kind, ok := range p.seen.WaitForCacheSync(ctx.Done()) {
		require.True(t, ok, kind)
	}
}
