package testserver

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver/process"
)

// startOthers starts the two other nodes of a cluster of three, one of which leads
// when it returns: the node that the test talks to comes later, and follows.
func startOthers(t testing.TB, datastore string, cfg *embed.Config) {
	t.Helper()
	if cfg == nil {
		cfg = NewTestConfig(t)
	}
	others := []*other{startOther(t, datastore, cfg, "other0"), startOther(t, datastore, cfg, "other1")}
	for _, o := range others {
		err := o.awaitReady(cfg)
		for attempt := 1; attempt < startAttempts && errors.Is(err, process.ErrEnded); attempt++ {
			o = startOther(t, datastore, cfg, o.name)
			err = o.awaitReady(cfg)
		}
		if err != nil {
			t.Fatalf("sqlbrain %s: %v", o.name, err)
		}
	}
}

type other struct {
	name, endpoint string
	server         *server
}

// startOther starts a node with the settings of cfg on separate ports. It is killed
// when the test ends: only the node that the test talks to must stop gracefully.
func startOther(t testing.TB, datastore string, cfg *embed.Config, name string) *other {
	t.Helper()
	ports, err := getAvailablePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	clientURL, peerURL := cfg.ListenClientUrls[0], fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	clientURL.Host = fmt.Sprintf("%s:%d", clientURL.Hostname(), ports[0])
	p := launch(t, arguments(datastore, cfg, name, clientURL.String(), peerURL))
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return &other{name, clientURL.String(), p}
}

func (o *other) awaitReady(cfg *embed.Config) error {
	client, err := newPlainClient(cfg, o.endpoint)
	if err != nil {
		return err
	}
	return errors.Join(o.server.awaitReady(client), client.Close())
}

// newPlainClient returns a client whose requests are not counted.
func newPlainClient(cfg *embed.Config, endpoint string) (*clientv3.Client, error) {
	tlsConfig, err := cfg.ClientTLSInfo.ClientConfig()
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{TLS: tlsConfig, Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second,
		Logger: zap.NewNop()})
}

// mustFollow fails the test if the node with the settings cfg leads, now or when
// the test ends: it would not have been a test of a follower.
func mustFollow(t testing.TB, cfg *embed.Config) {
	t.Helper()
	// Not the test's client, which the test may have closed by its end; and connected
	// now, for the files of certificates may be gone then.
	client, err := newPlainClient(cfg, cfg.ListenClientUrls[0].String())
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		if err := follows(client); err != nil {
			t.Error(err)
		}
	}
	check()
	t.Cleanup(func() {
		check()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
}

func follows(client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	// client.Status would connect anew.
	s, err := pb.NewMaintenanceClient(client.ActiveConnection()).Status(ctx, &pb.StatusRequest{})
	switch {
	case err != nil:
		return fmt.Errorf("status of the follower: %w", err)
	case s.Leader == 0 || s.Leader == s.Header.MemberId:
		return fmt.Errorf("node %x does not follow: %x leads", s.Header.MemberId, s.Leader)
	}
	return nil
}
