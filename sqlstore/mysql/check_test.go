package mysql

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

func TestBinaryLogThatACrashShortens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, value string
		want        bool
	}{
		{"sync_binlog", "0", true},
		{"sync_binlog", "1000", true},
		{"sync_binlog", "1", false},
		{"log_bin", "OFF", false},
		{"binlog_storage_engine", "", true},
		{"binlog_storage_engine", "InnoDB", false},
	} {
		vars := map[string]string{"log_bin": "ON", "sync_binlog": "0"}
		vars[c.name] = c.value
		require.Equal(t, c.want, losesBinlog(vars), "%s=%q", c.name, c.value)
	}
}

// TestUnsafeFlushIsReported: on MariaDB, 3 flushes as 1 does. The server is the test's own, because the setting is
// global.
func TestUnsafeFlushIsReported(t *testing.T) {
	t.Parallel()
	raw := enginetest.MariaDB.StartServer(t).URL()
	for value, unsafe := range map[string]bool{"0": true, "1": false, "2": true, "3": false} {
		_, err := openURL(t, raw, sqlstore.Options{}).Database().SQL().Exec(
			"SET GLOBAL innodb_flush_log_at_trx_commit = " + value)
		require.NoError(t, err)
		var log bytes.Buffer
		openURL(t, raw, sqlstore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.Equal(t, unsafe, strings.Contains(log.String(), "innodb_flush_log_at_trx_commit="+value), "%s: %s",
			value, &log)
	}
}
