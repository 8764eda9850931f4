package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	engine "github.com/sqlbrain/sqlbrain/sqlstore/mysql"
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
	// tidbLeastGC is longer than any statement, so that no version that it reads is
	// removed while it runs.
	tidbLeastGC = time.Minute
	// tidbMostGC bounds the versions of a row that TiKV keeps: each commit makes one of the fence row.
	tidbMostGC = time.Hour
	// tidbBatch is what a batch of writes may have in addition to its last request.
	tidbBatch = 4 << 20
)

// tidbCommits save a commit round trips to TiKV, and are as safe as two phases there. With the embedded store, the
// storage suite finds lost updates.
var tidbCommits = []string{"tidb_enable_async_commit", "tidb_enable_1pc"}

// checkTiDB judges what only TiDB has.
func (s *server) checkTiDB(ctx context.Context) {
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
	file := engine.TiDBConfigOf(s.vars)
	needed := s.MaxRequestBytes + packetOverhead
	s.expect("entry size", file.Entry >= needed, fmt.Sprintf("an entry is at most %s, --max-request-bytes %s",
		bytesText(int64(file.Entry)), bytesText(int64(s.MaxRequestBytes))), Fail,
		fmt.Sprintf("set tidb_txn_entry_size_limit, or txn-entry-size-limit in TiDB's configuration, to %d or more, or "+
			"lower --max-request-bytes", needed))
	needed += tidbBatch
	s.expect("transaction size", file.Transaction >= needed,
		"a transaction is at most "+bytesText(int64(file.Transaction)), Fail,
		fmt.Sprintf("set txn-total-size-limit in TiDB's configuration to %d or more; the default is 104857600", needed))
	s.checkTiDBCommits(file.Store == "" || file.Store == "tikv")
	s.checkTiDBGC()
	s.checkClustered(ctx)
}

func (s *server) checkTiDBCommits(onTiKV bool) {
	const check = "commits"
	var wrong []string
	for _, name := range tidbCommits {
		if v, ok := s.vars[name]; ok && s.vars.on(name) != onTiKV {
			wrong = append(wrong, name+" is "+v)
		}
	}
	set := func(value string) string { return "SET GLOBAL " + strings.Join(tidbCommits, value+", ") + value }
	switch found := strings.Join(wrong, ", "); {
	case found == "" && onTiKV:
		s.ok(check, "asynchronous, or in one phase")
	case found == "":
		s.ok(check, "in two phases")
	case onTiKV:
		s.add(check, Warn, found, "each commit takes more round trips to TiKV: "+set(" = ON"))
	default:
		s.add(check, Fail, found, "this store loses updates with it: "+set(" = OFF"))
	}
}

func (s *server) checkTiDBGC() {
	const check = "gc"
	life, err := time.ParseDuration(s.vars["tidb_gc_life_time"])
	switch gc := "tidb_gc_life_time is " + life.String(); {
	case err != nil: // some editions do not show it
	case s.vars["tidb_gc_enable"] != "" && !s.vars.on("tidb_gc_enable"):
		s.add(check, Warn, "tidb_gc_enable is OFF",
			"replaced and deleted rows are never removed: SET GLOBAL tidb_gc_enable = ON")
	case life < tidbLeastGC:
		s.add(check, Warn, gc, "long reads would lose their snapshot: SET GLOBAL tidb_gc_life_time = '10m', the default")
	case life > tidbMostGC:
		s.add(check, Warn, gc, "replaced and deleted rows take space, and slow reads down, for so long: "+
			"SET GLOBAL tidb_gc_life_time = '10m', the default, unless backups need more")
	default:
		s.ok(check, "%s", gc)
	}
}

// checkClustered asks whether the table is stored in the order of its key. Otherwise a read takes two steps, and
// regions have no boundaries between keys. The migrations ask for it, whatever tidb_enable_clustered_index is.
func (s *server) checkClustered(ctx context.Context) {
	const check = "clustered"
	var n int
	var kind string
	if s.conn == nil || !s.ask(ctx, check, `SELECT COUNT(*), COALESCE(MAX(TIDB_PK_TYPE), '') FROM information_schema.TABLES
		WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'object'`, &n, &kind) || n == 0 {
		return
	}
	s.expect(check, kind == "CLUSTERED", "the key of the table is "+kind, Warn,
		"another program made the table, while tidb_enable_clustered_index was "+s.vars["tidb_enable_clustered_index"]+
			": take a snapshot, `sqlbrain migrate up` in an empty database, and restore it there")
}
