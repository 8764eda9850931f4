//go:build linux

package zones

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/process"
)

// startPrimary starts a MariaDB in the first zone, whose commits wait until a replica in the last one has them on disk,
// and returns the URL of an empty database on it.
func startPrimary(t *testing.T, n *network) string {
	t.Helper()
	program, err := enginetest.MariaDB.Program()
	enginetest.Need(t, err, enginetest.ErrNoEngine)
	dir := enginetest.Directory(t)
	template := filepath.Join(dir, "template")
	owner, err := enginetest.MariaDB.Initialise(template)
	require.NoError(t, err)
	port := enginetest.FreePort(t)
	start := func(zone int, more ...string) (server string) {
		data, place := filepath.Join(dir, fmt.Sprint(zone)), n.zones[zone]
		require.NoError(t, enginetest.CopyData(data, template, owner))
		args := append([]string{
			"--no-defaults", "--datadir=" + data, "--tmpdir=" + data, "--socket=s", "--pid-file=pid",
			fmt.Sprintf("--port=%d", port), "--bind-address=" + place.Address, "--skip-name-resolve",
			fmt.Sprintf("--server-id=%d", zone+1), "--log-bin=log", "--relay-log=relay", "--binlog-format=ROW",
			"--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1", "--innodb-buffer-pool-size=256M",
		}, more...)
		server = fmt.Sprintf("mysql://root:%s@%s:%d/", enginetest.Password, place.Address, port)
		o := process.Options{As: owner, Network: place.Network}
		harness.StartProcessWith(t, o, program, args...).Await(t, func(context.Context) error {
			_, err := enginetest.Version(server)
			return err
		})
		return server
	}
	primary := start(0, "--rpl-semi-sync-master-enabled=ON", "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
		"--rpl-semi-sync-master-timeout=600000")
	replica := start(zones-1, "--rpl-semi-sync-slave-enabled=ON", "--read-only")
	enginetest.Exec(t, replica, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%d, MASTER_USER='root', "+
		"MASTER_PASSWORD='%s', MASTER_USE_GTID=slave_pos", address(0), port, enginetest.Password), "START SLAVE")
	db, err := sql.Open("mysql", fmt.Sprintf("root:%s@tcp(%s:%d)/", enginetest.Password, address(0), port))
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
