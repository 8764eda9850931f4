package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/programs"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// APIConfig says how to start kube-apiserver.
type APIConfig struct {
	// Store are the client URLs of etcd or sqlbrain.
	Store []string
	// Number distinguishes the API servers of one cluster: 0, 1, …
	Number int
	// Flags are more flags, which win over ours of the same name.
	Flags []string
}

// APIServer is a running kube-apiserver. Its methods end the
// test when they fail, so they are for the test's own goroutine.
type APIServer struct {
	t       testing.TB
	creds   *Credentials
	cfg     APIConfig
	port    int
	process *harness.Process
}

// StartAPIServer starts kube-apiserver and returns when it is ready.
func StartAPIServer(t testing.TB, creds *Credentials, cfg APIConfig) *APIServer {
	t.Helper()
	a := &APIServer{t: t, creds: creds, cfg: cfg, port: enginetest.FreePort(t)}
	a.process = harness.StartProcess(t, programs.Path(t, "kube-apiserver"), a.args()...)
	t.Cleanup(func() { // before the harness kills it and its log's directory goes
		if t.Failed() {
			a.keepLog()
		}
	})
	a.process.Await(t, func(ctx context.Context) error {
		_, err := a.Get(ctx, "/readyz")
		return err
	})
	return a
}

func (a *APIServer) keepLog() {
	to := filepath.Join(a.t.ArtifactDir(), fmt.Sprintf("kube-apiserver-%d.log", a.process.ID()))
	log, err := os.ReadFile(a.process.LogPath())
	if err == nil {
		err = os.WriteFile(to, log, 0o600)
	}
	if err != nil {
		a.t.Errorf("keep the log: %v", err)
		return
	}
	a.t.Logf("with go test -artifacts, the whole log stays in %s", to)
}

func (a *APIServer) args() []string {
	account := a.creds.path(accountKeyFile)
	return append([]string{
		"--etcd-servers=" + strings.Join(a.cfg.Store, ","),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", a.port),
		// An address for examples: Kubernetes refuses loopback here, and no client connects to it.
		fmt.Sprintf("--advertise-address=192.0.2.%d", a.cfg.Number+1),
		"--service-cluster-ip-range=10.0.0.0/16",
		"--tls-cert-file=" + a.creds.path(certificateFile),
		"--tls-private-key-file=" + a.creds.path(keyFile),
		"--token-auth-file=" + a.creds.path(tokenFile),
		"--authorization-mode=Node,RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + account,
		"--service-account-signing-key-file=" + account,
	}, a.cfg.Flags...)
}

// Get returns the server's answer to an administrator at a path such as /metrics or
// /readyz?verbose. It returns an error if the status is not success.
func (a *APIServer) Get(ctx context.Context, path string) ([]byte, error) {
	client, err := kubernetes.NewForConfig(a.Config())
	if err != nil {
		return nil, err
	}
	return client.RESTClient().Get().RequestURI(path).DoRaw(ctx)
}

// Config is an administrator's client configuration, which is the caller's to change.
func (a *APIServer) Config() *rest.Config {
	return &rest.Config{
		Host:            fmt.Sprintf("https://127.0.0.1:%d", a.port),
		BearerToken:     a.creds.token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: a.creds.path(certificateFile)},
		// Tests wait for the server, not for a rate that the client holds itself to.
		QPS: -1,
	}
}

// Client returns an administrator's client.
func (a *APIServer) Client() *kubernetes.Clientset {
	a.t.Helper()
	client, err := kubernetes.NewForConfig(a.Config())
	if err != nil {
		a.t.Fatal(err)
	}
	return client
}

// Process is the running program.
func (a *APIServer) Process() *harness.Process { return a.process }

// Stop ends the server in order (SIGTERM).
func (a *APIServer) Stop() { a.t.Helper(); a.process.Stop(a.t) }
