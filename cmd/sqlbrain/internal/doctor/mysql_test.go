package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

const (
	mysqlVersion   = "9.7.0"
	mariadbVersion = "10.11.6-MariaDB-log"
	tidbVersion    = "8.0.11-TiDB-v8.5.1"
)

// fit are the variables of a server without faults.
var fit = map[string]string{
	"sql_mode": "STRICT_TRANS_TABLES", "max_allowed_packet": "67108864", "transaction_isolation": "READ-COMMITTED",
	"read_only": "OFF", "super_read_only": "OFF", "innodb_flush_log_at_trx_commit": "1", "sync_binlog": "1",
	"log_bin": "ON", "innodb_page_size": "16384",
}

// judge runs the checks that need variables only.
func judge(version string, change map[string]string) *Report {
	vars := maps.Clone(fit)
	maps.Copy(vars, change)
	s := &server{
		examination: &examination{Target: Target{MaxRequestBytes: 1572864}, Report: &Report{}},
		version:     version, vars: vars,
	}
	s.checkVersion()
	s.checkWritable()
	s.checkStrict()
	s.checkPacket()
	s.checkDurability()
	s.checkReplication(nil, nil)
	s.checkIsolation()
	s.checkTimeouts()
	s.checkTiDB(context.Background())
	s.checkPageSize()
	return s.Report
}

func TestHealthyServerHasNoFindings(t *testing.T) {
	for _, version := range []string{mysqlVersion, mariadbVersion, "5.5.5-10.11.6-MariaDB", tidbVersion} {
		for _, f := range judge(version, nil).Findings {
			require.Equal(t, OK, f.Status, "%s: %+v", version, f)
		}
	}
}

func TestEachFaultOfAServerIsFound(t *testing.T) {
	for _, c := range []struct {
		version, name, value string
		check                string
		status               Status
	}{
		{"5.7.44", "", "", "version", Warn},
		{"10.5.1-MariaDB", "", "", "version", Warn},
		{"8.0.11-TiDB-v5.4.0", "", "", "version", Warn},
		{"some fork", "", "", "version", Warn},
		{mysqlVersion, "super_read_only", "ON", "writable", Fail},
		{mariadbVersion, "read_only", "NO_LOCK", "writable", Fail},
		{mariadbVersion, "tx_read_only", "ON", "writable", Fail},
		{tidbVersion, "tidb_super_read_only", "ON", "writable", Fail},
		{mysqlVersion, "sql_mode", "ONLY_FULL_GROUP_BY", "sql_mode", Fail},
		{mysqlVersion, "max_allowed_packet", "1048576", "packet", Fail},
		{mysqlVersion, "innodb_flush_log_at_trx_commit", "2", "durability", Warn},
		{mysqlVersion, "sync_binlog", "0", "durability", Warn},
		{mysqlVersion, "innodb_doublewrite", "DETECT_ONLY", "durability", Warn},
		{mariadbVersion, "innodb_doublewrite", "OFF", "durability", Warn},
		{mysqlVersion, "wait_timeout", "20", "timeouts", Warn},
		{mysqlVersion, "max_execution_time", "500", "timeouts", Warn},
		{mariadbVersion, "max_statement_time", "2.500000", "timeouts", Warn},
		{tidbVersion, "tidb_txn_mode", "optimistic", "tidb", Fail},
		{tidbVersion, "tidb_guarantee_linearizability", "OFF", "tidb", Fail},
		{tidbVersion, "tidb_read_staleness", "-5", "tidb", Fail},
		{tidbVersion, "tidb_txn_entry_size_limit", "1000000", "entry size", Fail},
		{tidbVersion, "tidb_config", `{"performance":{"txn-entry-size-limit":1000000}}`, "entry size", Fail},
		{tidbVersion, "tidb_config", `{"performance":{"txn-total-size-limit":4194304}}`, "transaction size", Fail},
		{tidbVersion, "tidb_config", `{"store":"unistore"}`, "durability", Warn},
		{tidbVersion, "tidb_gc_life_time", "30s", "gc", Warn},
		{tidbVersion, "tidb_gc_life_time", "24h0m0s", "gc", Warn},
		{tidbVersion, "tidb_enable_async_commit", "OFF", "commits", Warn},
		{tidbVersion, "tidb_enable_1pc", "OFF", "commits", Warn},
		{mysqlVersion, "transaction_isolation", "SERIALIZABLE", "isolation", Fail},
		{mysqlVersion, "innodb_page_size", "8192", "page size", Fail},
	} {
		report := judge(c.version, map[string]string{c.name: c.value})
		var bad []string
		for _, f := range report.Findings {
			if f.Status != OK {
				bad = append(bad, f.Check)
				require.Equal(t, c.status, f.Status, "%+v", f)
				require.NotEmpty(t, f.Advice, "%+v", f)
			}
		}
		require.Equal(t, []string{c.check}, bad, "%+v", c)
	}
	lost := judge(tidbVersion, map[string]string{"tidb_config": `{"store":"unistore"}`, "tidb_enable_1pc": "ON"}).Findings
	require.True(t, slices.ContainsFunc(lost, func(f Finding) bool { return f.Check == "commits" && f.Status == Fail }),
		lost)
	// As good as the default.
	for _, same := range []struct{ version, name, value string }{
		{mariadbVersion, "innodb_flush_log_at_trx_commit", "3"},
		{mysqlVersion, "innodb_doublewrite", "DETECT_AND_RECOVER"},
		{tidbVersion, "tidb_enable_async_commit", "ON"},
		{tidbVersion, "tidb_enable_1pc", "ON"},
		{tidbVersion, "tidb_gc_life_time", "10m0s"},
		{mysqlVersion, "max_execution_time", "0"},
		{mariadbVersion, "wsrep_on", "OFF"},
	} {
		for _, f := range judge(same.version, map[string]string{same.name: same.value}).Findings {
			require.Equal(t, OK, f.Status, "%+v: %+v", same, f)
		}
	}
	// Without a binary log its flushing does not matter.
	for _, f := range judge(mysqlVersion, map[string]string{"log_bin": "OFF", "sync_binlog": "0"}).Findings {
		require.Equal(t, OK, f.Status, "%+v", f)
	}
}

func TestEachConnectionErrorHasItsAdvice(t *testing.T) {
	seen := map[string]bool{}
	for _, err := range []error{
		&mysql.MySQLError{Number: errAccessDenied}, &mysql.MySQLError{Number: errDBAccessDenied},
		&mysql.MySQLError{Number: errBadDB}, &mysql.MySQLError{Number: errTooManyConns},
		fmt.Errorf("wrapped: %w", errors.New("x509: unknown authority")),
		&net.OpError{Op: "dial", Err: errors.New("connection refused")},
	} {
		advice := Advice(err)
		require.NotEmpty(t, advice)
		require.False(t, seen[advice], "%v: %s", err, advice)
		seen[advice] = true
	}
	require.Empty(t, Advice(errors.New("something else")))
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestReportsAreWrittenInFullOrFail(t *testing.T) {
	r := &Report{Datastore: "sqlite://x"}
	r.ok("first", "good")
	r.add("second", Fail, "bad", "repair it")
	require.Equal(t, 1, r.Failed())
	var out bytes.Buffer
	require.NoError(t, r.WriteTable(&out))
	for _, part := range []string{"sqlite://x", "ok", "fail", "first", "-> repair it"} {
		require.True(t, strings.Contains(out.String(), part), part)
	}
	require.Error(t, r.WriteTable(brokenWriter{}))
	require.Error(t, r.WriteJSON(brokenWriter{}))
}

func TestFlushesOfACommit(t *testing.T) {
	for name, c := range map[string]struct {
		version string
		change  map[string]string
		want    string // in the finding; empty: there is none
		not     string
	}{
		"both logs": {mysqlVersion, nil, "two, of InnoDB's log and of the binary log; skip_log_bin",
			inEngine},
		"no binary log": {mysqlVersion, map[string]string{"log_bin": "OFF"}, "one: no binary log",
			"skip_log_bin"},
		"MariaDB that could": {mariadbVersion, map[string]string{inEngine: ""}, inEngine + "=innodb makes it one",
			"needs both"},
		"MariaDB that does": {mariadbVersion, map[string]string{inEngine: "InnoDB", "sync_binlog": "0"},
			"one: InnoDB holds the binary log", "skip_log_bin"},
		"Galera": {mariadbVersion,
			map[string]string{inEngine: "", "wsrep_on": "ON", "wsrep_provider": "libgalera_smm.so"}, "needs both", inEngine},
		"Group Replication": {mysqlVersion, map[string]string{"group_replication_group_name": "g"}, "needs both",
			"skip_log_bin"},
		"semi-synchronous, MySQL": {mysqlVersion, map[string]string{"rpl_semi_sync_source_enabled": "ON"}, "needs both",
			"skip_log_bin"},
		"semi-synchronous, MariaDB": {mariadbVersion, map[string]string{"rpl_semi_sync_master_enabled": "ON"}, "needs both",
			"skip_log_bin"},
		"not durable": {mysqlVersion, map[string]string{"sync_binlog": "0"}, "", ""},
		"not durable, no binary log": {mysqlVersion,
			map[string]string{"log_bin": "OFF", "innodb_flush_log_at_trx_commit": "2"}, "", ""},
		"TiDB": {tidbVersion, nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			details := ""
			for _, f := range judge(c.version, c.change).Findings {
				if f.Check == "flushes" {
					require.Equal(t, OK, f.Status, "%+v", f)
					details += f.Detail
				}
			}
			if c.want == "" {
				require.Empty(t, details)
				return
			}
			require.Contains(t, details, c.want)
			require.NotContains(t, details, c.not)
		})
	}
}
