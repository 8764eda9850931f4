// This file is copied next to kube-apiserver's own test server when its tests run on
// sqlbrain. RunEtcd below replaces the function of that name, whose other parts
// (configuration, ports) are unchanged.

package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver/process" // a copy of sqlstore/enginetest/process
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
)

// Environment variables that the runner sets: the program, the server that provides
// empty databases (none: a SQLite file in the test's directory), and whether the test
// talks to a follower ("1") instead of a single server.
const (
	envProgram    = "TESTSERVER_PROGRAM"
	envDatastores = "TESTSERVER_DATABASES"
	envFollower   = "TESTSERVER_FOLLOWER"
)

const (
	startWait = 5 * time.Minute
	// Ports are chosen before the server listens on them: another process may take one.
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
		if !own || attempt == startAttempts || !errors.Is(err, process.ErrEnded) {
			t.Fatalf("sqlbrain: %v", err)
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

// server is a running sqlbrain.
type server struct {
	*process.Process
	ready bool // it has answered; only for the test's goroutine
}

// startSqlbrain starts a server that is stopped when the test ends.
func startSqlbrain(t testing.TB, args []string) *server {
	t.Helper()
	s := launch(t, args)
	t.Cleanup(func() { s.stop(t) })
	return s
}

func launch(t testing.TB, args []string) *server {
	t.Helper()
	p, err := process.Start(process.Options{Log: filepath.Join(t.TempDir(), "log")}, os.Getenv(envProgram), args...)
	if err != nil {
		t.Fatal(err)
	}
	return &server{Process: p}
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
func (s *server) awaitReady(client *clientv3.Client) error {
	err := s.Await(context.Background(), startWait, 10*time.Millisecond, func(ctx context.Context) error {
		_, err := clientv3.NewKV(client).Get(ctx, "ready") // client.KV would count it
		return err
	})
	s.ready = err == nil
	return err
}

// stop ends the server in order; that it does is part of every test.
func (s *server) stop(t testing.TB) {
	switch {
	case s.Running():
		if err := errors.Join(s.Stop(), s.Err()); err != nil {
			t.Errorf("sqlbrain, after SIGTERM: %v", err)
		}
	case s.ready:
		t.Errorf("sqlbrain ended during the test: %v", s.Err())
	}
	if t.Failed() {
		t.Logf("end of sqlbrain's log:\n%s", s.LogTail(6000))
	}
}
