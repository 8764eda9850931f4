package doctor

import engine "github.com/sqlbrain/sqlbrain/sqlstore/mysql"

// inEngine is MariaDB's setting, since 12.3, of where the binary log is.
const inEngine = "binlog_storage_engine"

// checkFlushes says how many flushes a commit waits for on a server that makes commits durable, and
// what makes them fewer at the same durability. Two are no fault.
func (s *server) checkFlushes() {
	const check = "flushes"
	switch {
	case !s.vars.on("log_bin"):
		s.ok(check, "a commit waits for one: no binary log is written")
		return
	case !engine.BinlogFiles(s.vars):
		s.ok(check, "a commit waits for one: InnoDB holds the binary log (%s=%s)", inEngine, s.vars[inEngine])
		return
	}
	fewer := "skip_log_bin makes it one, if neither replicas nor point-in-time recovery read the binary log"
	_, offered := s.vars[inEngine]
	switch {
	case s.galera(), s.vars["group_replication_group_name"] != "",
		s.vars.on("rpl_semi_sync_master_enabled"), s.vars.on("rpl_semi_sync_source_enabled"):
		fewer = "the replication in use needs both"
	case offered:
		fewer = inEngine + "=innodb makes it one, without Galera and semi-synchronous replication; " + fewer
	}
	s.ok(check, "a commit waits for two, of InnoDB's log and of the binary log; %s; no other setting saves a flush "+
		"without losing acknowledged writes in a crash", fewer)
}
