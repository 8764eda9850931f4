package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// What differs on TiDB, beyond what ../docs/tidb.md says is alike.

const (
	productTiDB = "TiDB"
	// TiDB's limits, by default, on an entry and on a transaction.
	tidbMaxEntry = 6 << 20
	tidbMargin   = 64 << 10 // what TiDB counts beside key and value
	tidbMaxTx    = 100<<20 - 1<<20
)

// What a session on TiDB must not inherit from the server's defaults, which an
// operator may have changed for other applications.
var (
	// tidbWrites: transactions lock as they go, and find a duplicate when they
	// insert it. Else both show at COMMIT only.
	tidbWrites = [][2]string{
		{"tidb_txn_mode", "pessimistic"},
		{"tidb_constraint_check_in_place_pessimistic", "ON"},
	}
	// tidbReads: a read sees what was committed before it, wherever that was; not
	// the state of up to two seconds ago, nor that of a chosen day. Some editions
	// do not let a session set these: what counts is how they are.
	tidbReads = [][2]string{
		{"tidb_guarantee_linearizability", "ON"},
		{"tidb_low_resolution_tso", "OFF"},
		{"tidb_enable_external_ts_read", "OFF"},
	}
)

// tidbAssignments continue a SET statement. To MySQL and MariaDB they are a
// comment.
func tidbAssignments(settings [][2]string) string {
	var b strings.Builder
	b.WriteString(" /*T! ")
	for _, s := range settings {
		b.WriteString(", " + s[0] + " = '" + s[1] + "'")
	}
	b.WriteString(" */")
	return b.String()
}

// setTiDBReads may be refused.
var setTiDBReads = "SET SESSION autocommit = 1" + tidbAssignments(tidbReads)

// checkTiDB judges the settings that only TiDB has.
func checkTiDB(vars map[string]string, info *Info) error {
	for _, s := range slices.Concat(tidbWrites, tidbReads) {
		// A variable that there is not has no wrong value.
		if v, ok := vars[s[0]]; ok && !strings.EqualFold(v, s[1]) {
			return unfit("%s is %q: SET GLOBAL %[1]s = '%[3]s', or use a TiDB, or a proxy, on which sessions can set it", s[0], v, s[1])
		}
	}
	entry := tidbMaxEntry
	// 0, or no such variable before 7.6: the configuration file's, which cannot be
	// read with ordinary rights. It is 6 MiB unless it was raised.
	if n, err := strconv.Atoi(vars["tidb_txn_entry_size_limit"]); err == nil && n > 0 {
		entry = n
	}
	info.maxRow, info.maxTx = min(info.maxRow, entry-tidbMargin), tidbMaxTx
	if info.maxRow <= 0 {
		return unfit("tidb_txn_entry_size_limit is %d: set it to at least %d", entry, 2<<20)
	}
	return nil
}

// tidbTexts are mysqlTexts, with the one plan pinned that an optimizer without
// statistics might miss: the join would read all versions of all keys.
var tidbTexts = func() texts {
	t := mysqlTexts
	t.list = strings.Replace(t.list, "SELECT ", "SELECT /*+ INL_JOIN(v) */ ", 1)
	return t
}()

// showRegions lists the pieces TiKV keeps the table in.
const showRegions = "SHOW TABLE object REGIONS"

// regionBounds returns the internal keys at which regions begin, in order. A
// region that begins elsewhere, at the table's own beginning or in the middle of
// a key, has none.
func regionBounds(ctx context.Context, q querier) ([][]byte, error) {
	var bounds [][]byte
	err := query(ctx, q, showRegions, nil, func(r *sql.Rows) (bool, error) {
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

// split cuts [start, end) at those bounds that lie in it.
func split(start, end []byte, bounds [][]byte) []Partition {
	parts := []Partition{{Start: bytes.Clone(start), End: bytes.Clone(end)}}
	for _, b := range bounds {
		last := &parts[len(parts)-1]
		if bytes.Compare(b, last.Start) > 0 && bytes.Compare(b, end) < 0 {
			last.End = b
			parts = append(parts, Partition{Start: bytes.Clone(b), End: bytes.Clone(end)})
		}
	}
	return parts
}
