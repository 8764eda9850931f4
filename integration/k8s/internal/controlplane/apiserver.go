package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

const (
	// readyWait is generous: a first start makes a hundred roles and rules, on a
	// machine that may do much else.
	readyWait = 3 * time.Minute
	readyPoll = 100 * time.Millisecond
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

// APIServer is a kube-apiserver that can end and come back. Its methods end the
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
	a := NewAPIServer(t, creds, cfg)
	a.Start()
	return a
}

// NewAPIServer returns an API server that is not started yet.
func NewAPIServer(t testing.TB, creds *Credentials, cfg APIConfig) *APIServer {
	t.Helper()
	return &APIServer{t: t, creds: creds, cfg: cfg, port: enginetest.FreePort(t)}
}

// Start starts the server on the port it had, and returns when it is ready.
func (a *APIServer) Start() {
	a.t.Helper()
	a.StartWithoutWaiting()
	a.AwaitReady()
}

// StartWithoutWaiting is Start that does not wait until the server is ready.
func (a *APIServer) StartWithoutWaiting() {
	a.t.Helper()
	a.process = start(a.t, "kube-apiserver", a.args()...)
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

// AwaitReady returns when /readyz says that the server is ready.
func (a *APIServer) AwaitReady() {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), readyWait)
	defer cancel()
	if err := await(ctx, a.process, func(ctx context.Context) error {
		_, err := a.Get(ctx, "/readyz")
		return err
	}); err != nil {
		a.t.Fatal(err)
	}
}

// await polls until the check passes, ctx ends, or the process has ended.
func await(ctx context.Context, p *harness.Process, check func(context.Context) error) error {
	poll := time.NewTicker(readyPoll)
	defer poll.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.Exited():
			return fmt.Errorf("ended while starting\n%s", p.LogTail(4000))
		case <-ctx.Done():
			return errors.Join(errors.New("not ready"), err, ctx.Err())
		case <-poll.C:
		}
	}
}

// Get returns the server's answer to an administrator at a path such as /metrics or
// /readyz?verbose. It returns an error if the status is not success.
func (a *APIServer) Get(ctx context.Context, path string) ([]byte, error) {
	client, err := kubernetes.NewForConfig(a.Config(Admin))
	if err != nil {
		return nil, err
	}
	return client.RESTClient().Get().RequestURI(path).DoRaw(ctx)
}

// URL is where the server is; it stays the same.
func (a *APIServer) URL() string { return fmt.Sprintf("https://127.0.0.1:%d", a.port) }

// Config is a user's client configuration, which is the caller's to change.
func (a *APIServer) Config(u User) *rest.Config { return a.creds.config(u, a.URL()) }

// Client returns an administrator's client.
func (a *APIServer) Client() *kubernetes.Clientset {
	a.t.Helper()
	client, err := kubernetes.NewForConfig(a.Config(Admin))
	if err != nil {
		a.t.Fatal(err)
	}
	return client
}

// Kubeconfig returns a file for programs like kubectl, gone when the test ends.
func (a *APIServer) Kubeconfig(u User) string {
	a.t.Helper()
	return a.creds.kubeconfig(a.t, u, a.URL())
}

// Process is the running program.
func (a *APIServer) Process() *harness.Process { return a.process }

// Stop ends the server in order (SIGTERM).
func (a *APIServer) Stop() { a.t.Helper(); a.process.Stop(a.t) }

// Kill ends the server at once (SIGKILL).
func (a *APIServer) Kill() { a.t.Helper(); a.process.Kill(a.t) }
