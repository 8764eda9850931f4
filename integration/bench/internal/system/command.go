package system

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// command returns the program of a node with its arguments.
func (r *Running) command(n *node) (name string, args []string, err error) {
	e := r.env
	peer := fmt.Sprintf("http://127.0.0.1:%d", n.peer.number)
	switch r.System.Product {
	case Etcd:
		quota := e.Quota
		if quota == 0 {
			quota = 8 << 30
		}
		return e.Programs.Etcd, []string{
			"--data-dir", n.directory,
			"--listen-client-urls", n.endpoint(), "--advertise-client-urls", n.endpoint(),
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer,
			"--quota-backend-bytes", strconv.FormatInt(quota, 10), "--log-level", "warn",
		}, nil
	case Sqlbrain:
		datastore := "sqlite://" + filepath.Join(r.dir, "data.db")
		if r.db != nil {
			datastore = r.db.url()
		}
		return e.Programs.Sqlbrain, []string{
			"serve", "--datastore", datastore, "--name", n.name,
			"--listen-client-urls", n.endpoint(), "--advertise-client-urls", n.endpoint(),
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		}, nil
	case Kine:
		if err := os.MkdirAll(n.directory, 0o700); err != nil {
			return "", nil, err
		}
		synchronous := "FULL"
		if r.System.Loose {
			synchronous = "NORMAL"
		}
		// kine's own parameters, but for synchronous.
		endpoint := "sqlite://" + filepath.Join(n.directory, "state.db") +
			"?_journal_mode=WAL&_busy_timeout=30000&_synchronous=" +
			synchronous + "&_txlock=immediate&_stmt_cache_size=20&cache=shared"
		if r.db != nil {
			endpoint = r.db.kineEndpoint()
		}
		return e.Programs.Kine, []string{
			"--endpoint", endpoint, "--listen-address", fmt.Sprintf("127.0.0.1:%d", n.client.number), "--metrics-bind-address", "0",
		}, nil
	}
	return "", nil, fmt.Errorf("no such product: %q", r.System.Product)
}

// quickReconnect keeps the pauses between attempts to connect short against what
// is measured.
func quickReconnect() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 2 * time.Millisecond, Multiplier: 1.2, Jitter: 0.1,
			MaxDelay: 20 * time.Millisecond},
		MinConnectTimeout: time.Second,
	})}
}
