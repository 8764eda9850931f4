package system

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// command returns the program of the product with its arguments.
func (r *Running) command() (name string, args []string, err error) {
	e, data, member, peer := r.env, filepath.Join(r.dir, "n1"), "n1", r.peerURL()
	if r.first != nil {
		member = "n2"
	}
	switch r.System.Product {
	case Etcd:
		const quota = 8 << 30 // the default of 2 GiB ends before the data does
		cluster, state := member+"="+peer, "new"
		if r.first != nil {
			cluster, state = cluster+",n1="+r.first.peerURL(), "existing"
		}
		return e.Programs.Etcd, []string{
			"--data-dir", data, "--name", member,
			"--listen-client-urls", r.endpoint(), "--advertise-client-urls", r.endpoint(),
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster,
			"--initial-cluster-state", state, "--quota-backend-bytes", strconv.Itoa(quota), "--log-level", "warn",
		}, nil
	case Sqlbrain:
		return e.Programs.Sqlbrain, []string{
			"serve", "--datastore", r.datastore(), "--name", member,
			"--listen-client-urls", r.endpoint(), "--advertise-client-urls", r.endpoint(),
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		}, nil
	case Kine:
		if err := os.MkdirAll(data, 0o700); err != nil {
			return "", nil, err
		}
		synchronous := "FULL"
		if r.System.Loose {
			synchronous = "NORMAL"
		}
		// kine's own parameters, but for synchronous.
		endpoint := "sqlite://" + filepath.Join(data, "state.db") +
			"?_journal_mode=WAL&_busy_timeout=30000&_synchronous=" +
			synchronous + "&_txlock=immediate&_stmt_cache_size=20&cache=shared"
		if r.db != nil {
			endpoint = r.db.kineEndpoint()
		}
		return e.Programs.Kine, []string{
			"--endpoint", endpoint, "--listen-address", fmt.Sprintf("127.0.0.1:%d", r.client.number),
			"--metrics-bind-address", "0",
		}, nil
	}
	return "", nil, fmt.Errorf("no such product: %q", r.System.Product)
}

// datastore is the URL of sqlbrain's data.
func (r *Running) datastore() string {
	switch {
	case r.first != nil:
		return r.first.datastore()
	case r.db != nil:
		return r.db.url()
	default:
		return "sqlite://" + filepath.Join(r.dir, "data.db")
	}
}
