package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// Galera is MariaDB's synchronous replication, whose servers all take writes.
var Galera = Replication{Name: "galera", engine: enginetest.MariaDB, find: findGalera, settings: galeraSettings,
	begin: beginGalera, join: joinGalera, primary: galeraPrimary,
	members: "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'wsrep_cluster_size'"}

// libraries are where distributions put Galera.
var libraries = []string{"/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so",
	"/usr/lib64/galera/libgalera_smm.so"}

func library() string {
	i := slices.IndexFunc(libraries, func(path string) bool { _, err := os.Stat(path); return err == nil })
	if i < 0 {
		return ""
	}
	return libraries[i]
}

func findGalera() (*serverProgram, error) {
	path, err := enginetest.FindProgram("mariadbd")
	if err != nil {
		return nil, fmt.Errorf("%w: no mariadbd (apt-get install mariadb-server)", errMissing)
	}
	if library() == "" {
		return nil, fmt.Errorf("%w: no libgalera_smm.so (apt-get install galera-4)", errMissing)
	}
	for _, tool := range []string{"mariadb-install-db", "wsrep_sst_rsync", "rsync", "ss"} {
		if _, err := enginetest.FindProgram(tool); err != nil {
			return nil, fmt.Errorf("%w: Galera needs %s here (apt-get install mariadb-server rsync iproute2)", errMissing, tool)
		}
	}
	return &serverProgram{path: path, small: "--innodb-log-file-size=32M"}, nil
}

func galeraSettings(d *Replicated, i int) []string {
	m := d.members[i]
	var peers []string
	for _, p := range d.members {
		peers = append(peers, fmt.Sprintf("127.0.0.1:%d", p.groupPorts[0]))
	}
	return []string{
		"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-on=ON", "--wsrep-provider=" + library(),
		"--wsrep-cluster-name=" + d.id[:8], "--wsrep-node-name=" + m.name, "--wsrep-sst-method=rsync",
		"--wsrep-node-address=127.0.0.1", "--wsrep-cluster-address=gcomm://" + strings.Join(peers, ","),
		fmt.Sprintf("--wsrep-sst-receive-address=127.0.0.1:%d", m.groupPorts[2]),
		fmt.Sprintf("--wsrep-provider-options=base_host=127.0.0.1;base_port=%d;gmcast.listen_addr=tcp://127.0.0.1:%d;ist.recv_addr=127.0.0.1:%d;gcache.size=32M",
			m.groupPorts[0], m.groupPorts[0], m.groupPorts[1]),
	}
}

func beginGalera(d *Replicated, i int, first bool) ([]string, error) {
	m := d.members[i]
	switch {
	case first:
		return []string{"--wsrep-new-cluster"}, nil
	case m.process == nil:
		return nil, nil
	}
	// A killed server does not know its last position. With the position it requests only
	// the missing transactions, otherwise a full copy.
	position, err := recoveredPosition(d, m)
	return []string{"--wsrep-start-position=" + position}, err
}

var recovered = regexp.MustCompile(`Recovered position:\s*(\S+)`)

func recoveredPosition(d *Replicated, m *server) (string, error) {
	out, err := run(d.user, d.dir, "", d.program.path, append(d.command(m), "--wsrep-recover")...)
	found := recovered.FindSubmatch(out)
	if found == nil {
		return "", fmt.Errorf("no position was recovered: %w", err)
	}
	return string(found[1]), nil
}

func joinGalera(ctx context.Context, d *Replicated, i int, _ bool) error {
	if !galeraServes(ctx, d.members[i]) {
		return errors.New("it is not synced")
	}
	return nil
}

func galeraServes(ctx context.Context, m *server) bool {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	rows, err := m.admin.QueryContext(ctx, "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_local_state_comment', "+
		"'wsrep_ready', 'wsrep_cluster_status')")
	if err != nil {
		return false
	}
	defer rows.Close() //nolint:errcheck // rows.Err reports it
	good := 0
	for rows.Next() {
		var name, value string
		if rows.Scan(&name, &value) != nil {
			return false
		}
		if value == "Synced" || value == "ON" || value == "Primary" {
			good++
		}
	}
	return rows.Err() == nil && good == 3
}

// galeraPrimary is the member that has most of sqlbrain's connections, or else the
// first that serves.
func galeraPrimary(ctx context.Context, d *Replicated) int {
	best, most := -1, -1
	for i, m := range d.members {
		if m.process == nil || !m.process.Running() || !galeraServes(ctx, m) {
			continue
		}
		if n, err := connections(ctx, m); err == nil && n > most {
			best, most = i, n
		}
	}
	return best
}

// connections returns how many connections of sqlbrain's a member has.
func connections(ctx context.Context, m *server) (n int, err error) {
	err = ask(ctx, m, "SELECT COUNT(*) FROM information_schema.processlist WHERE user = '"+user+"'", &n)
	return n, err
}
