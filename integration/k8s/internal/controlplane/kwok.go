package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/k8s/internal/programs"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// KWOKConfig says how KWOK plays the nodes.
type KWOKConfig struct {
	// LeaseSeconds is what the nodes' leases promise; each is renewed every quarter
	// of it. 40, a kubelet's default, if it is 0.
	LeaseSeconds int
	// Parallelism bounds the requests of each kind that are made at once, 4 if it
	// is 0.
	Parallelism int
}

// StartKWOK starts KWOK, which plays a kubelet for every node there is, and
// returns when it is healthy.
func StartKWOK(t testing.TB, a *APIServer, cfg KWOKConfig) *harness.Process {
	t.Helper()
	if cfg.LeaseSeconds == 0 {
		cfg.LeaseSeconds = 40
	}
	if cfg.Parallelism == 0 {
		cfg.Parallelism = 4
	}
	options := fmt.Sprintf(`apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  manageAllNodes: true
  nodeLeaseDurationSeconds: %d
  nodeLeaseParallelism: %[2]d
  podPlayStageParallelism: %[2]d
  nodePlayStageParallelism: %[2]d
---
`, cfg.LeaseSeconds, cfg.Parallelism)
	config := filepath.Join(t.TempDir(), "kwok.yaml")
	if err := os.WriteFile(config, append([]byte(options), programs.KWOKStages(t)...), 0o600); err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", enginetest.FreePort(t))
	p := start(t, "kwok",
		"--config="+config,
		"--kubeconfig="+a.creds.kubeconfig(t, Admin, a.URL()),
		"--node-ip=192.0.2.254",
		"--server-address="+address,
		"--v=WARN", // or every heartbeat is logged
	)
	awaitHealthy(t, p, "http://"+address+"/healthz")
	return p
}
