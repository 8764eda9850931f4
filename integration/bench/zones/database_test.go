package zones

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// startPrimary starts a MariaDB whose commits wait until a replica in another zone has them on disk, and returns the
// URL of an empty database on it.
func startPrimary(t *testing.T, distance time.Duration) string {
	t.Helper()
	program, err := enginetest.MariaDB.Program()
	enginetest.Need(t, err, enginetest.ErrNoEngine)
	dir := enginetest.Directory(t)
	template := filepath.Join(dir, "template")
	owner, err := enginetest.MariaDB.Initialise(template)
	require.NoError(t, err)
	start := func(id int, more ...string) (port int, db *sql.DB) {
		data := filepath.Join(dir, fmt.Sprint(id))
		require.NoError(t, enginetest.CopyData(data, template, owner))
		port = enginetest.FreePort(t)
		args := append([]string{
			"--no-defaults", "--datadir=" + data, "--tmpdir=" + data, "--socket=s", "--pid-file=pid",
			fmt.Sprintf("--port=%d", port), "--bind-address=127.0.0.1", "--skip-name-resolve",
			fmt.Sprintf("--server-id=%d", id), "--log-bin=log", "--relay-log=relay", "--binlog-format=ROW",
			"--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1", "--innodb-buffer-pool-size=256M",
		}, more...)
		server := harness.StartProcessAs(t, owner, program, args...)
		c := mysql.NewConfig()
		c.Net, c.Addr, c.User, c.Passwd, c.Logger = "tcp", fmt.Sprintf("127.0.0.1:%d", port), "root", enginetest.Password,
			&mysql.NopLogger{}
		connector, err := mysql.NewConnector(c)
		require.NoError(t, err)
		db = sql.OpenDB(connector)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		server.Await(t, db.PingContext)
		return port, db
	}
	primary, atPrimary := start(1, "--rpl-semi-sync-master-enabled=ON", "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
		"--rpl-semi-sync-master-timeout=600000")
	_, atReplica := start(2, "--rpl-semi-sync-slave-enabled=ON", "--read-only")
	source, to := harness.StartProxy(t, fmt.Sprintf("mysql://127.0.0.1:%d", primary))
	source.Delay(distance)
	u, err := url.Parse(to)
	require.NoError(t, err)
	for _, statement := range []string{
		"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=" + u.Port() + ", MASTER_USER='root', MASTER_PASSWORD='" +
			enginetest.Password + "', MASTER_USE_GTID=slave_pos",
		"START SLAVE",
	} {
		_, err := atReplica.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	eventually.Nil(t, eventually.Deadline, func(ctx context.Context) error {
		var name, clients string
		err := atPrimary.QueryRowContext(ctx, "SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'").Scan(&name, &clients)
		if err == nil && clients != "1" {
			err = errors.New("commits wait for " + clients + " replicas")
		}
		return err
	})
	_, err = atPrimary.ExecContext(t.Context(), "CREATE DATABASE sqlbrain")
	require.NoError(t, err)
	return fmt.Sprintf("mysql://root:%s@127.0.0.1:%d/sqlbrain", enginetest.Password, primary)
}
