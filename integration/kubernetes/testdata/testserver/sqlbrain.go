// Put beside kube-apiserver's own test server when its tests run on sqlbrain:
// RunEtcd below takes the place of the function of that name, whose other parts
// (configuration, ports) stay as they are.

package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
)

// What the runner tells: the program, where to get empty databases from (none: a
// SQLite file in the test's directory), and whether the test is to talk to a
// follower ("1") rather than to a server that is alone.
const (
	envProgram    = "SQLBRAIN_PROGRAM"
	envDatastores = "SQLBRAIN_DATASTORES"
	envFollower   = "SQLBRAIN_FOLLOWER"
)

const (
	startWait = 60 * time.Second
	stopWait  = 20 * time.Second
	// Ports are picked before they are listened on: somebody else may get one.
	startAttempts = 3
)

// RunEtcd starts sqlbrain on an empty database and returns a client of it. It is
// stopped when the test ends.
func RunEtcd(t testing.TB, cfg *embed.Config) *kubernetes.Client {
	t.Helper()
	datastore := newDatastore(t)
	follower := os.Getenv(envFollower) == "1"
	own := cfg == nil
	if follower {
		startOthers(t, datastore, cfg)
	}
	for attempt := 1; ; attempt++ {
		if own {
			cfg = NewTestConfig(t)
		}
		var peerURL string
		if follower {
			peerURL = cfg.ListenPeerUrls[0].String()
		}
		p := startSqlbrain(t, arguments(datastore, cfg, "endpoint", cfg.ListenClientUrls[0].String(), peerURL))
		client, err := newClient(t, cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = p.awaitReady(client.Client)
		if err == nil {
			if follower {
				mustFollow(t, cfg)
			}
			return client
		}
		if err := client.Close(); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if !own || attempt == startAttempts || !errors.Is(err, errExited) {
			t.Fatalf("sqlbrain: %v\n%s", err, p.log())
		}
	}
}

func newClient(t testing.TB, cfg *embed.Config) (*kubernetes.Client, error) {
	tlsConfig, err := cfg.ClientTLSInfo.ClientConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.New(clientv3.Config{
		TLS:         tlsConfig,
		Endpoints:   []string{cfg.AdvertiseClientUrls[0].String()},
		DialTimeout: 10 * time.Second,
		Logger:      zaptest.NewLogger(t, zaptest.Level(zapcore.ErrorLevel)).Named("client"),
	})
	if err != nil {
		return nil, err
	}
	// The tests count requests through these.
	recorder := storagetesting.NewKubernetesRecorder(client.Kubernetes)
	client.KV = storagetesting.NewKVRecorder(client.KV, recorder)
	client.Kubernetes = recorder
	return client, nil
}

// newDatastore returns the URL of an empty database.
func newDatastore(t testing.TB) string {
	t.Helper()
	from := os.Getenv(envDatastores)
	if from == "" {
		return "sqlite://" + filepath.Join(t.TempDir(), "data.db")
	}
	url, err := ask(http.MethodPost, from, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := ask(http.MethodDelete, from, url); err != nil {
			t.Error(err)
		}
	})
	return url
}

func ask(method, url, body string) (answer string, err error) {
	r, err := http.NewRequest(method, url, bytes.NewBufferString(body))
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	b, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, url, response.Status, b)
	}
	return string(b), err
}

// process is a running sqlbrain.
type process struct {
	cmd     *exec.Cmd
	logFile string
	exited  chan struct{} // closed after err is set
	err     error
	ready   bool // it has answered; only for the test's goroutine
}

var errExited = errors.New("ended while starting")

// startSqlbrain starts a server that is stopped when the test ends.
func startSqlbrain(t testing.TB, args []string) *process {
	t.Helper()
	p := launch(t, args)
	t.Cleanup(func() { p.stop(t) })
	return p
}

func launch(t testing.TB, args []string) *process {
	t.Helper()
	p := &process{logFile: filepath.Join(t.TempDir(), "log"), exited: make(chan struct{})}
	log, err := os.Create(p.logFile)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}()
	p.cmd = exec.Command(os.Getenv(envProgram), args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = dieWithParent()
	started := make(chan error, 1)
	go func() {
		release := holdThread()
		defer release()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	return p
}

// arguments are those of a node with the settings of cfg. One that is alone has no
// peerURL: the usual port has room for one server.
func arguments(datastore string, cfg *embed.Config, name, clientURL, peerURL string) []string {
	args := []string{
		"serve", "--datastore", datastore, "--log-format", "console", "--name", name,
		"--listen-client-urls", clientURL, "--advertise-client-urls", clientURL, "--listen-peer-urls", peerURL,
	}
	for flag, value := range map[string]string{
		"--cert-file":       cfg.ClientTLSInfo.CertFile,
		"--key-file":        cfg.ClientTLSInfo.KeyFile,
		"--trusted-ca-file": cfg.ClientTLSInfo.TrustedCAFile,
	} {
		if value != "" {
			args = append(args, flag, value)
		}
	}
	if cfg.ClientTLSInfo.ClientCertAuth {
		args = append(args, "--client-cert-auth")
	}
	for flag, n := range map[string]int64{
		"--quota-backend-bytes": cfg.QuotaBackendBytes,
		"--max-txn-ops":         int64(cfg.MaxTxnOps),
		"--max-request-bytes":   int64(cfg.MaxRequestBytes),
	} {
		if n != 0 {
			args = append(args, flag, strconv.FormatInt(n, 10))
		}
	}
	if d := cfg.WatchProgressNotifyInterval; d != 0 {
		args = append(args, "--watch-progress-notify-interval", d.String())
	}
	return args
}

// awaitReady returns nil when the server answers a Get.
func (p *process) awaitReady(client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), startWait)
	defer cancel()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		attempt, cancelAttempt := context.WithTimeout(ctx, time.Second)
		// Not through client.KV, which counts.
		_, err := clientv3.NewKV(client).Get(attempt, "ready")
		cancelAttempt()
		if err == nil {
			p.ready = true
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%w: %v", errExited, p.err)
		case <-ctx.Done():
			return fmt.Errorf("does not serve within %s: %w", startWait, err)
		case <-poll.C:
		}
	}
}

// stop ends the server in order; whether it does is part of every test.
func (p *process) stop(t testing.TB) {
	select {
	case <-p.exited:
		if p.ready {
			t.Errorf("sqlbrain ended under the test: %v", p.err)
		}
	default:
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("stop sqlbrain: %v", err)
		}
		select {
		case <-p.exited:
			if p.err != nil {
				t.Errorf("sqlbrain, after SIGTERM: %v", p.err)
			}
		case <-time.After(stopWait):
			t.Errorf("sqlbrain did not stop within %s of SIGTERM", stopWait)
			p.kill(t)
		}
	}
	if t.Failed() {
		t.Logf("end of sqlbrain's log:\n%s", p.log())
	}
}

// kill ends the server at once.
func (p *process) kill(t testing.TB) {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	<-p.exited
}

func (p *process) log() string {
	const most = 6000
	b, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-most):])
}
