package atwork

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// store is what a cluster keeps its objects in.
type store struct {
	description string
	endpoints   []string
	client      *clientv3.Client
	// programs are the processes that the store consists of, by role.
	programs []program
}

type program struct {
	role string
	pid  int
}

const (
	roleStore    = "store"
	roleDatabase = "database"
)

// stores are the ways to start one, by name.
var stores = map[string]func(*testing.T) store{
	"etcd":     func(t *testing.T) store { return startCluster(t, harness.ClusterConfig{Etcd: true}) },
	"sqlbrain": func(t *testing.T) store { return startCluster(t, harness.ClusterConfig{}) },
	"mariadb":  func(t *testing.T) store { return startCluster(t, harness.ClusterConfig{Product: enginetest.MariaDB}) },
	"mysql":    func(t *testing.T) store { return startCluster(t, harness.ClusterConfig{Product: enginetest.MySQL}) },
	"sqlite":   startSQLite,
}

func startCluster(t *testing.T, cfg harness.ClusterConfig) store {
	t.Helper()
	if cfg.Etcd {
		// kube-apiserver compacts; the quota is what etcd's documentation suggests at most.
		cfg.Extra = []string{"--quota-backend-bytes=8589934592"}
	} else {
		harness.NeedsDatabase(t)
		cfg.Extra = []string{"--log-level=warn", "--warning-unary-request-duration=2s"}
	}
	var db *database
	cfg.Prepare = func(datastore string) {
		db = openDatabase(t, datastore)
		if cfg.Product != "" || !enginetest.ServerGiven() {
			db.enlarge(t)
		}
	}
	c := harness.StartCluster(t, cfg)
	s := store{endpoints: c.Endpoints(), client: c.Client()}
	for i := range c.Size() {
		s.programs = append(s.programs, program{roleStore, c.Node(i).Process().ID()})
	}
	if cfg.Etcd {
		s.description = fmt.Sprintf("etcd %s, %d members", versionOf(t, s), c.Size())
		return s
	}
	s.description = fmt.Sprintf("sqlbrain, %d members over %s", c.Size(), db.version(t))
	s.programs = append(s.programs, program{roleDatabase, db.pid(t)})
	return s
}

func startSQLite(t *testing.T) store {
	t.Helper()
	harness.NeedsDatabase(t)
	file := filepath.Join(t.TempDir(), "data.db")
	n := harness.StartNodeOn(t, "sqlite://"+file, "--log-level=warn",
		"--warning-unary-request-duration=2s")
	return store{
		description: "sqlbrain, one process over SQLite",
		endpoints:   []string{n.Endpoint()},
		client:      n.Client(),
		programs:    []program{{roleStore, n.Process().ID()}},
	}
}

func versionOf(t *testing.T, s store) string {
	status, err := s.client.Status(t.Context(), s.endpoints[0])
	require.NoError(t, err)
	return status.Version
}

// database is the MySQL or MariaDB under sqlbrain.
type database struct {
	db   *sql.DB
	name string
}

func openDatabase(t *testing.T, datastore string) *database {
	t.Helper()
	u, err := url.Parse(datastore)
	require.NoError(t, err)
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.User, cfg.DBName = "tcp", u.Host, u.User.Username(), strings.TrimPrefix(u.Path, "/")
	cfg.Passwd, _ = u.User.Password()
	connector, err := mysql.NewConnector(cfg)
	require.NoError(t, err)
	d := &database{db: sql.OpenDB(connector), name: cfg.DBName}
	t.Cleanup(func() { require.NoError(t, d.db.Close()) })
	return d
}

// enlarge gives a server the memory and the redo log of a typical server under
// Kubernetes; those of the tests are small.
func (d *database) enlarge(t *testing.T) {
	t.Helper()
	redo := "innodb_redo_log_capacity"
	if strings.Contains(d.version(t), "MariaDB") {
		redo = "innodb_log_file_size"
	}
	for _, variable := range []string{"innodb_buffer_pool_size", redo} {
		_, err := d.db.ExecContext(t.Context(), "SET GLOBAL "+variable+" = 1024*1024*1024")
		require.NoError(t, err)
	}
}

func (d *database) ask(t *testing.T, query string, args ...any) (answer string) {
	t.Helper()
	require.NoError(t, d.db.QueryRowContext(context.WithoutCancel(t.Context()), query, args...).Scan(&answer))
	return answer
}

func (d *database) version(t *testing.T) string {
	t.Helper()
	version := d.ask(t, "SELECT VERSION()")
	if before, _, maria := strings.Cut(version, "-MariaDB"); maria {
		return "MariaDB " + before
	}
	return "MySQL " + version
}

// pid is the server's process, which runs on this machine.
func (d *database) pid(t *testing.T) int {
	t.Helper()
	content, err := os.ReadFile(d.ask(t, "SELECT @@pid_file"))
	require.NoError(t, err, "figures need a database server of this machine")
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	require.NoError(t, err)
	return pid
}
