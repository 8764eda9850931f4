package mysql

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/jmoiron/sqlx"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

const (
	// packetMargin is what a packet holds in addition to a row: the statement, lengths,
	// and the two other keys that come with a row in the answer of a list.
	packetMargin = 64 << 10
	minPacket    = 1 << 20
	wasReset     = "although every session sets it: a proxy seems to reset sessions"
)

// Check implements sqldb.Engine. It reads the settings of conn's session, which hold for all
// connections, because all are set up alike.
func (e *engine) Check(ctx context.Context, conn *sqlx.Conn) (sqldb.Info, error) {
	vars, err := variables(ctx, conn)
	if err != nil {
		return sqldb.Info{}, err
	}
	info := sqldb.Info{Product: "MySQL", Version: vars["version"], MaxRow: sqldb.MaxKey + sqldb.MaxValue}
	switch {
	case strings.Contains(info.Version, "TiDB"):
		info.Product = productTiDB
		if err := checkTiDB(vars, &info); err != nil {
			return info, err
		}
	case strings.Contains(info.Version, "MariaDB"):
		info.Product = "MariaDB"
	}
	info.MaxPacket, err = strconv.Atoi(vars["max_allowed_packet"])
	if err != nil || info.MaxPacket < minPacket {
		return info, sqldb.Unfit("max_allowed_packet is %q: set it to at least %d bytes on the server",
			vars["max_allowed_packet"], minPacket)
	}
	info.MaxRow = min(info.MaxRow, info.MaxPacket-packetMargin)
	for _, mode := range []string{"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"} {
		if !strings.Contains(vars["sql_mode"], mode) {
			return info, sqldb.Unfit("sql_mode is %q although every session sets it to %q: a proxy seems to reset sessions",
				vars["sql_mode"], sqlMode)
		}
	}
	for _, s := range sessionSettings {
		// A variable that the server does not show cannot be judged.
		if v, ok := vars[s[0]]; ok && !strings.EqualFold(v, s[1]) {
			return info, sqldb.Unfit("%s is %q "+wasReset, s[0], v)
		}
	}
	level := vars["transaction_isolation"]
	if level == "" {
		level = vars["tx_isolation"]
	}
	if level != strings.ReplaceAll(isolation, " ", "-") {
		return info, sqldb.Unfit("the isolation level is %q although every session sets it to %s: a proxy seems to "+
			"reset sessions", level, isolation)
	}
	if on := ReadOnly(vars); len(on) > 0 {
		return info, sqldb.Unfit("the server is read-only (%s = %s): connect to the primary, or turn it off",
			on[0], vars[on[0]])
	}
	if err := checkReplicated(vars); err != nil {
		return info, err
	}
	e.galera.Store(vars["wsrep_on"] == "ON")
	e.grouped.Store(vars["group_replication_group_name"] != "")
	if v := vars["innodb_flush_log_at_trx_commit"]; v != "" && !slices.Contains(SafeFlushes(info.Version), v) {
		e.logger.WarnContext(ctx, "the server may lose acknowledged commits when it crashes; set it to 1",
			"innodb_flush_log_at_trx_commit", v)
	}
	if losesBinlog(vars) {
		e.logger.WarnContext(ctx, "the server's replicas may miss acknowledged commits when it crashes; set it to 1",
			"sync_binlog", vars["sync_binlog"])
	}
	return info, checkMySQLTable(ctx, conn)
}

// ReadOnly returns which of the variables of a server keep it from writing.
func ReadOnly(vars map[string]string) (on []string) {
	for _, name := range []string{"read_only", "super_read_only", "innodb_read_only", "transaction_read_only",
		"tx_read_only", "tidb_super_read_only", "tidb_restricted_read_only"} {
		// MariaDB has values beyond ON, such as NO_LOCK.
		if v := vars[name]; v != "" && v != "OFF" && v != "0" {
			on = append(on, name)
		}
	}
	return on
}

// SafeFlushes returns the values of innodb_flush_log_at_trx_commit, the default first, with which a server of this
// version has flushed a commit before it answers.
func SafeFlushes(version string) []string {
	if strings.Contains(version, "MariaDB") {
		return []string{"1", "3"}
	}
	return []string{"1"}
}

// BinlogFiles reports whether the server whose variables these are writes a binary log to files of its own, which
// need a flush of their own. A binary log in InnoDB, which MariaDB has since 12.3, is flushed with InnoDB's log, and
// sync_binlog has no effect.
func BinlogFiles(vars map[string]string) bool {
	return vars["log_bin"] == "ON" && !strings.EqualFold(vars["binlog_storage_engine"], "innodb")
}

// losesBinlog reports whether the server may lose the end of its binary log in a crash.
func losesBinlog(vars map[string]string) bool {
	v := vars["sync_binlog"]
	return BinlogFiles(vars) && v != "" && v != "1"
}

func variables(ctx context.Context, conn *sqlx.Conn) (map[string]string, error) {
	const text = `SHOW VARIABLES WHERE Variable_name IN (
		'version', 'sql_mode', 'max_allowed_packet', 'character_set_client', 'character_set_connection',
		'completion_type', 'sql_select_limit', 'sql_buffer_result', 'transaction_isolation', 'tx_isolation', 'read_only',
		'super_read_only', 'innodb_read_only', 'transaction_read_only', 'tx_read_only', 'tidb_super_read_only',
		'tidb_restricted_read_only', 'tidb_txn_mode', 'tidb_constraint_check_in_place_pessimistic',
		'tidb_guarantee_linearizability', 'tidb_low_resolution_tso', 'tidb_enable_external_ts_read',
		'tidb_txn_entry_size_limit', 'tidb_config', 'innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin',
		'binlog_storage_engine', 'wsrep_on', 'wsrep_sync_wait', 'wsrep_dirty_reads', 'group_replication_group_name',
		'group_replication_consistency')`
	var rows []struct {
		Name  string `db:"Variable_name"`
		Value string `db:"Value"`
	}
	if err := conn.SelectContext(ctx, &rows, text); err != nil {
		return nil, err
	}
	vars := make(map[string]string, len(rows))
	for _, row := range rows {
		vars[row.Name] = row.Value
	}
	return vars, nil
}

func checkMySQLTable(ctx context.Context, conn *sqlx.Conn) error {
	var engines []string
	err := conn.SelectContext(ctx, &engines, "SELECT COALESCE(engine, 'none') FROM information_schema.tables WHERE "+
		"table_schema = DATABASE() AND table_name = 'object'")
	if err != nil {
		return err
	}
	if len(engines) == 0 {
		return sqldb.Unfit(sqldb.NoTable)
	}
	if !strings.EqualFold(engines[0], "InnoDB") {
		return sqldb.Unfit("the storage engine of table object is %s, which has no transactions: it must be InnoDB",
			engines[0])
	}
	var columns []struct {
		Name     string `db:"name"`
		Type     string `db:"type"`
		Length   int64  `db:"length"`
		Nullable string `db:"nullable"`
		Key      string `db:"colkey"`
	}
	err = conn.SelectContext(ctx, &columns, `SELECT column_name AS name, LOWER(data_type) AS type, COALESCE(character_maximum_length, 0) AS length,
		is_nullable AS nullable, column_key AS colkey FROM information_schema.columns
		WHERE table_schema = DATABASE() AND table_name = 'object' ORDER BY ordinal_position`)
	if err != nil {
		return err
	}
	ok := len(columns) == 2
	if ok {
		k, v := columns[0], columns[1]
		ok = k.Name == "internal_key" && k.Type == "varbinary" && k.Length >= sqldb.MaxKey && k.Key == "PRI" &&
			v.Name == "object_value" && (v.Type == "mediumblob" || v.Type == "longblob") && v.Nullable == "NO" && v.Key == ""
	}
	if !ok {
		return sqldb.Unfit("table object is %+v; it must be (internal_key VARBINARY(%d) PRIMARY KEY, object_value "+
			"MEDIUMBLOB NOT NULL): "+sqldb.OtherTable, columns, sqldb.MaxKey)
	}
	return nil
}
