package controlplane

import (
	"context"
	"fmt"
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// StartControllerManager starts kube-controller-manager, with more flags, and
// returns when it is healthy.
func StartControllerManager(t testing.TB, a *APIServer, flags ...string) *harness.Process {
	t.Helper()
	kubeconfig := a.creds.kubeconfig(t, controllerManager, a.URL())
	return startController(t, "kube-controller-manager", append([]string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--root-ca-file=" + a.creds.path(certificateFile),
		"--service-account-private-key-file=" + a.creds.path(accountKeyFile),
		"--use-service-account-credentials",
	}, flags...)...)
}

// StartScheduler starts kube-scheduler, with more flags, and returns when it is
// healthy.
func StartScheduler(t testing.TB, a *APIServer, flags ...string) *harness.Process {
	t.Helper()
	kubeconfig := a.creds.kubeconfig(t, scheduler, a.URL())
	return startController(t, "kube-scheduler", append([]string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
	}, flags...)...)
}

func startController(t testing.TB, name string, flags ...string) *harness.Process {
	t.Helper()
	port := enginetest.FreePort(t)
	p := start(t, name, append([]string{
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir=" + t.TempDir(),
	}, flags...)...)
	awaitHealthy(t, p, fmt.Sprintf("https://127.0.0.1:%d/healthz", port))
	return p
}

func awaitHealthy(t testing.TB, p *harness.Process, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readyWait)
	defer cancel()
	if err := await(ctx, p, healthz(t, url)); err != nil {
		t.Fatal(err)
	}
}
