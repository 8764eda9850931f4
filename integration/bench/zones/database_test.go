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

	_ "github.com/go-sql-driver/mysql"
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
	start := func(id int, more ...string) (server string) {
		data := filepath.Join(dir, fmt.Sprint(id))
		require.NoError(t, enginetest.CopyData(data, template, owner))
		port := enginetest.FreePort(t)
		args := append([]string{
			"--no-defaults", "--datadir=" + data, "--tmpdir=" + data, "--socket=s", "--pid-file=pid",
			fmt.Sprintf("--port=%d", port), "--bind-address=127.0.0.1", "--skip-name-resolve",
			fmt.Sprintf("--server-id=%d", id), "--log-bin=log", "--relay-log=relay", "--binlog-format=ROW",
			"--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1", "--innodb-buffer-pool-size=256M",
		}, more...)
		server = fmt.Sprintf("mysql://root:%s@127.0.0.1:%d/", enginetest.Password, port)
		harness.StartProcessAs(t, owner, program, args...).Await(t, func(context.Context) error {
			_, err := enginetest.Version(server)
			return err
		})
		return server
	}
	primary := start(1, "--rpl-semi-sync-master-enabled=ON", "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
		"--rpl-semi-sync-master-timeout=600000")
	replica := start(2, "--rpl-semi-sync-slave-enabled=ON", "--read-only")
	source, to := harness.StartProxy(t, primary)
	source.Delay(distance)
	u, err := url.Parse(to)
	require.NoError(t, err)
	enginetest.Exec(t, replica, "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT="+u.Port()+
		", MASTER_USER='root', MASTER_PASSWORD='"+enginetest.Password+"', MASTER_USE_GTID=slave_pos", "START SLAVE")
	at, err := url.Parse(primary)
	require.NoError(t, err)
	db, err := sql.Open("mysql", "root:"+enginetest.Password+"@tcp("+at.Host+")/")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	eventually.Nil(t, eventually.Deadline, func(ctx context.Context) error {
		var name, clients string
		err := db.QueryRowContext(ctx, "SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'").Scan(&name, &clients)
		if err == nil && clients != "1" {
			err = errors.New("commits wait for " + clients + " replicas")
		}
		return err
	})
	enginetest.Exec(t, primary, "CREATE DATABASE sqlbrain")
	return primary + "sqlbrain"
}
