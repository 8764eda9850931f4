package doctor

import (
	"fmt"
	"strings"
	"time"
)

// tidbSettings are what a session on TiDB must have, and sets itself where it may.
var tidbSettings = [][2]string{
	{"tidb_txn_mode", "pessimistic"},
	{"tidb_constraint_check_in_place_pessimistic", "ON"},
	{"tidb_guarantee_linearizability", "ON"},
	{"tidb_low_resolution_tso", "OFF"},
	{"tidb_enable_external_ts_read", "OFF"},
	{"tidb_read_staleness", "0"},
}

const (
	tidbDefaultEntry = 6 << 20
	// tidbLeastGC is longer than any statement, so that no version that it reads is
	// removed while it runs.
	tidbLeastGC = time.Minute
)

// checkTiDB judges what only TiDB has. Async commit and one-phase commit are as good
// as two phases.
func (s *server) checkTiDB() {
	if !s.tidb() {
		return
	}
	var wrong, set []string
	for _, want := range tidbSettings {
		// A variable that does not exist has no wrong value.
		if v, ok := s.vars[want[0]]; ok && v != "" && !strings.EqualFold(v, want[1]) {
			wrong = append(wrong, want[0]+" is "+v)
			set = append(set, fmt.Sprintf("%s = %s", want[0], want[1]))
		}
	}
	if len(wrong) > 0 {
		s.add("tidb", Fail, strings.Join(wrong, ", "), "SET GLOBAL "+strings.Join(set, ", "))
	} else {
		s.ok("tidb", "pessimistic transactions, linearizable reads")
	}
	entry := s.vars.number("tidb_txn_entry_size_limit")
	if entry == 0 {
		entry = tidbDefaultEntry
	}
	if needed := int64(s.MaxRequestBytes) + packetOverhead; entry < needed {
		s.add("entry size", Fail, fmt.Sprintf("an entry is at most %s, --max-request-bytes %s", bytesText(entry),
			bytesText(int64(s.MaxRequestBytes))),
			fmt.Sprintf("set tidb_txn_entry_size_limit, or txn-entry-size-limit in TiDB's configuration, to %d or more, or lower --max-request-bytes", needed))
	}
	if life, err := time.ParseDuration(s.vars["tidb_gc_life_time"]); err == nil && life < tidbLeastGC {
		s.add("gc", Warn, "tidb_gc_life_time is "+life.String(),
			"long reads would lose their snapshot: set it to 10m, the default")
	}
}
