package mysql

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// This file holds the differences of TiDB; see also ../../docs/tidb.md.

const (
	productTiDB = "TiDB"
	// TiDB's limits, by default, on an entry and on a transaction.
	tidbMaxEntry = 6 << 20
	tidbMargin   = 64 << 10 // what TiDB counts in addition to key and value
	tidbMaxTx    = 100 << 20
)

// A session on TiDB must not inherit these settings from the server's defaults, which an
// operator may have changed for other applications.
var (
	// tidbWrites: transactions lock rows when they use them, and report a duplicate when
	// they insert it. Otherwise both show only at COMMIT.
	tidbWrites = [][2]string{
		{"tidb_txn_mode", "pessimistic"},
		{"tidb_constraint_check_in_place_pessimistic", "ON"},
	}
	// tidbReads: a read sees everything that was committed before it, on any server; not
	// the state of up to two seconds ago, nor that of a chosen time. Some editions do
	// not let a session set these; then the server's values must be the same.
	tidbReads = [][2]string{
		{"tidb_guarantee_linearizability", "ON"},
		{"tidb_low_resolution_tso", "OFF"},
		{"tidb_enable_external_ts_read", "OFF"},
	}
)

// tidbAssignments continues a SET statement with settings. MySQL and MariaDB read them as
// a comment.
func tidbAssignments(settings [][2]string) string {
	return " /*T! " + assignments(settings, "'") + " */"
}

// setTiDBReads may be refused.
var setTiDBReads = "SET SESSION autocommit = 1" + tidbAssignments(tidbReads)

// checkTiDB judges the settings that only TiDB has.
func checkTiDB(vars map[string]string, info *sqldb.Info) error {
	for _, s := range slices.Concat(tidbWrites, tidbReads) {
		// A variable that the server does not have cannot be wrong.
		if v, ok := vars[s[0]]; ok && !strings.EqualFold(v, s[1]) {
			return sqldb.Unfit("%s is %q: SET GLOBAL %[1]s = '%[3]s', or use a TiDB, or a proxy, on which sessions can set it",
				s[0], v, s[1])
		}
	}
	file := TiDBConfigOf(vars)
	entry, tx := file.Entry, file.Transaction
	info.MaxRow, info.MaxBatch = min(info.MaxRow, entry-tidbMargin), tx-tx/100
	if info.MaxRow <= 0 || info.MaxBatch < info.MaxRow {
		return sqldb.Unfit("an entry may have %d bytes, a transaction %d: set tidb_txn_entry_size_limit to at least %d, "+
			"txn-total-size-limit in TiDB's configuration to more",
			entry, tx, 2<<20)
	}
	return nil
}

// TiDBConfig is what matters of how a TiDB is configured.
type TiDBConfig struct {
	Store              string // "tikv", or what the server itself keeps data in; "" if it is not shown
	Entry, Transaction int    // the most bytes
}

// TiDBConfigOf returns the configuration of a TiDB with these variables.
func TiDBConfigOf(vars map[string]string) TiDBConfig {
	var file struct {
		Store       string `json:"store"`
		Performance struct {
			Entry       int `json:"txn-entry-size-limit"`
			Transaction int `json:"txn-total-size-limit"`
		} `json:"performance"`
	}
	// Some editions do not show their configuration. Then the limits are the defaults.
	_ = json.Unmarshal([]byte(vars["tidb_config"]), &file)
	c := TiDBConfig{file.Store, cmp.Or(file.Performance.Entry, tidbMaxEntry),
		cmp.Or(file.Performance.Transaction, tidbMaxTx)}
	// 0, or no such variable before 7.6: the limit of the configuration applies.
	if n, err := strconv.Atoi(vars["tidb_txn_entry_size_limit"]); err == nil && n > 0 {
		c.Entry = n
	}
	return c
}

// tidbStatements are statements, with the one plan pinned that an optimizer without
// statistics might miss: the join would read all versions of all keys. Of single keys, the join takes
// twice as much of the server's time as two statements: they are point gets, and their plan is kept.
var tidbStatements = func() sqldb.Statements {
	t := statements
	t.List = strings.Replace(t.List, "SELECT ", "SELECT /*+ INL_JOIN(v) */ ", 1)
	t.Lookup = ""
	return t
}()

// showRegions lists the regions of TiKV that hold the table.
const showRegions = "SHOW TABLE object REGIONS"

// regionBounds returns the internal keys at which regions begin, in order. It skips
// regions that do not begin at a key: the first one of the table, and those that begin
// in the middle of a key.
func regionBounds(ctx context.Context, q sqldb.Querier) ([][]byte, error) {
	var bounds [][]byte
	err := sqldb.EachRow(ctx, q, showRegions, nil, func(r *sql.Rows) (bool, error) {
		columns, err := r.Columns()
		if err != nil {
			return false, err
		}
		// The columns after these differ between versions.
		values := make([]any, len(columns))
		var start sql.RawBytes
		for i, name := range columns {
			if values[i] = new(sql.RawBytes); strings.EqualFold(name, "START_KEY") {
				values[i] = &start
			}
		}
		if err := r.Scan(values...); err != nil {
			return false, err
		}
		if key, ok := decodeRegionKey(string(start)); ok {
			bounds = append(bounds, key)
		}
		return true, nil
	})
	slices.SortFunc(bounds, bytes.Compare)
	return bounds, err
}

// decodeRegionKey returns the internal key in a region's boundary as TiDB prints
// it: t_TABLE_r_ and the clustered key in hex, coded so that it compares
// bytewise: a 1 (bytes), then groups of eight bytes, padded with zeros, each
// followed by 255 less the bytes of padding.
func decodeRegionKey(printed string) (key []byte, ok bool) {
	_, handle, ok := strings.Cut(printed, "_r_")
	if !ok {
		return nil, false
	}
	coded, err := hex.DecodeString(handle)
	if err != nil || len(coded) == 0 || coded[0] != 1 {
		return nil, false
	}
	for coded = coded[1:]; len(coded) >= 9; coded = coded[9:] {
		padding := 255 - int(coded[8])
		if padding > 8 {
			return nil, false
		}
		key = append(key, coded[:8-padding]...)
		if padding > 0 {
			return key, len(coded) == 9
		}
	}
	return nil, false
}
