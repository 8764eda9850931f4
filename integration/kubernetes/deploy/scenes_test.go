package deploy

import (
	"fmt"
	"strings"
)

// series returns the series of a member.
func series(name, labels, instance, values string) string {
	all := []string{`job="sqlbrain"`, fmt.Sprintf("instance=%q", instance)}
	if labels != "" {
		all = append(all, labels)
	}
	return fmt.Sprintf("%s{%s} %s", name, strings.Join(all, ","), values)
}

// a and b return series of two members.
func a(name, labels, values string) string { return series(name, labels, "a", values) }
func b(name, labels, values string) string { return series(name, labels, "b", values) }

// calls returns the labels of calls of a method that clients got a code for.
func calls(method, code string) string {
	return fmt.Sprintf(`grpc_service="etcdserverpb.KV",grpc_method=%q,grpc_type="unary",grpc_code=%q`, method, code)
}

// strange returns a series of something else that has the same metric.
func strange(name, values string) string {
	return fmt.Sprintf(`%s{job="etcd",instance="e"} %s`, name, values)
}

// job: the alert is the cluster's.
var job = []string{""}

// scenes are the scenes of each alert: some in which it must fire, and some in which
// it would be a false alarm.
var scenes = map[string][]scene{
	"SqlbrainRequestsFail": {
		{"the database hangs, and clients wait for 7 s", []string{
			a("grpc_server_handled_total", calls("Put", "OK"), "0+500x5 2500x9"),
			a("grpc_server_handled_total", calls("Put", "Unavailable"), "0x6 8 8 16 16 16 24 24 32"),
			b("grpc_server_handled_total", calls("Put", "OK"), "0+500x14"),
			b("grpc_server_handled_total", calls("Put", "Unavailable"), "0x14"),
		}, []string{"a"}},
		{"writes fail, and reads from memory do not", []string{
			a("grpc_server_handled_total", calls("Txn", "DeadlineExceeded"), "0x6 8x8"),
			a("grpc_server_handled_total", calls("Txn", "OK"), "0x14"),
			a("grpc_server_handled_total", calls("Range", "DeadlineExceeded"), "0x14"),
			a("grpc_server_handled_total", calls("Range", "OK"), "0+900x14"),
		}, []string{"a"}},
		{"the first calls of all", []string{
			a("grpc_server_handled_total", calls("Put", "OK"), "0x10"),
			a("grpc_server_handled_total", calls("Put", "Unavailable"), "0x9 2"),
		}, []string{"a"}},
		{"a failover", []string{
			a("grpc_server_handled_total", calls("Put", "OK"), "0+500x5 2600+500x8"),
			a("grpc_server_handled_total", calls("Put", "Unavailable"), "0x6 100x8"),
		}, nil},
		{"one client has no patience", []string{
			a("grpc_server_handled_total", calls("Put", "OK"), "7x14"),
			a("grpc_server_handled_total", calls("Put", "DeadlineExceeded"), "0x6 1x8"),
		}, nil},
		{"clients ask for what cannot be, or go away", []string{
			a("grpc_server_handled_total", calls("Put", "InvalidArgument"), "0+9x14"),
			a("grpc_server_handled_total", calls("Put", "Canceled"), "0+9x14"),
		}, nil},
		{"watches end", []string{
			a("grpc_server_handled_total",
				`grpc_service="etcdserverpb.Watch",grpc_method="Watch",grpc_type="bidi_stream",grpc_code="Unavailable"`, "0+9x14"),
		}, nil},
	},
	"SqlbrainNotReady": {
		{"the database of one of two", []string{
			a("etcd_server_healthcheck", `type="readyz",name="database"`, "1x12"),
			b("etcd_server_healthcheck", `type="readyz",name="database"`, "1x3 0x9"),
		}, []string{"b"}},
		{"one look", []string{a("etcd_server_healthcheck", `type="readyz",name="database"`, "1x3 0 1x8")}, nil},
		{"another kind of check", []string{a("etcd_server_healthcheck", `type="livez",name="serializable_read"`, "0x12")},
			nil},
		{"an etcd", []string{strange("etcd_server_healthcheck", "0x12")}, nil},
	},
	"SqlbrainMemberDown": {
		{"one of two is away", []string{a("up", "", "1x12"), b("up", "", "0x12")}, []string{"b"}},
		{"a restart", []string{a("up", "", "1x3 0x5 1x12")}, nil},
		{"something else is away", []string{strange("up", "0x12")}, nil},
	},
	"SqlbrainNotServing": {
		{"one of two", []string{a("etcd_server_has_leader", "", "1x12"), b("etcd_server_has_leader", "", "1x5 0x7")},
			[]string{"b"}},
		{"a moment", []string{a("etcd_server_has_leader", "", "1x5 0 1x7")}, nil},
		{"an etcd", []string{strange("etcd_server_has_leader", "0x12")}, nil},
	},
	"SqlbrainDataLost": {
		{"one cannot write", []string{a("sqlbrain_data_lost", `record="pending"`, "0x3 1x9"),
			b("sqlbrain_data_lost", `record="pending"`, "0x12")}, []string{"a"}},
		{"the others continue", []string{b("sqlbrain_data_lost", `record="unproven"`, "0x3 1x9")}, []string{"b"}},
		{"nothing was lost", []string{a("sqlbrain_data_lost", `record="pending"`, "0x12"),
			a("sqlbrain_data_lost", `record="refuted"`, "0x3 1x9")}, nil},
	},
	"SqlbrainNoLeader": {
		{"followers without a leader", []string{
			a("etcd_server_has_leader", "", "1x12"), a("etcd_server_is_leader", "", "1x4 0x8"),
			b("etcd_server_has_leader", "", "1x12"), b("etcd_server_is_leader", "", "0x12"),
		}, job},
		{"all are down", []string{a("etcd_server_has_leader", "", "1x4 stale"), a("up", "", "1x4 0x8"),
			a("etcd_server_is_leader", "", "1x4 stale"), b("up", "", "0x12")}, job},
		{"all stopped", []string{a("etcd_server_has_leader", "", "0x12"), a("etcd_server_is_leader", "", "0x12")}, job},
		{"the leader changes", []string{
			a("etcd_server_has_leader", "", "1x12"), a("etcd_server_is_leader", "", "1x4 0x8"),
			b("etcd_server_has_leader", "", "1x12"), b("etcd_server_is_leader", "", "0x5 1x7"),
		}, nil},
		{"one follower is cut off", []string{
			a("etcd_server_has_leader", "", "1x12"), a("etcd_server_is_leader", "", "1x12"),
			b("etcd_server_has_leader", "", "0x12"), b("etcd_server_is_leader", "", "0x12"),
		}, nil},
	},
	"SqlbrainLeaderChanges": {
		{"every two minutes", []string{a("etcd_server_leader_changes_seen_total", "", "0x3 1x3 2x3 3x3 4x3 5x3 6x3 7x3 8x3")},
			job},
		{"a rolling restart", []string{a("etcd_server_leader_changes_seen_total", "", "1x10 2x5 3x30")}, nil},
		{"of an etcd", []string{strange("etcd_server_leader_changes_seen_total", "0+1x40")}, nil},
	},
	"SqlbrainPeerRefused": {
		{"for as long as it is asked", []string{
			a("sqlbrain_leader_suspicions_total", `result="alive"`, "0x20"),
			b("sqlbrain_leader_suspicions_total", `result="alive"`, "0+1x20"),
		}, []string{"b"}},
		{"a moment", []string{b("sqlbrain_leader_suspicions_total", `result="alive"`, "0x3 1x30")}, nil},
		{"leaders that died", []string{b("sqlbrain_leader_suspicions_total", `result="gone"`, "0+1x20")}, nil},
	},
	"SqlbrainMembersSilent": {
		{"one", []string{a("sqlbrain_members", `state="alive"`, "2x20"), a("sqlbrain_members", `state="silent"`, "1x20")},
			job},
		{"one was killed, and started again", []string{a("sqlbrain_members", `state="silent"`, "0x5 1x8 0x20")}, nil},
		{"one is stopped", []string{a("sqlbrain_members", `state="silent"`, "0x20"),
			a("sqlbrain_members", `state="stopped"`, "1x20")}, nil},
	},
	"SqlbrainMembersStopped": {
		{"two of three", []string{a("sqlbrain_members", `state="alive"`, "3x3 1x40"),
			a("sqlbrain_members", `state="stopped"`, "0x3 2x40")}, job},
		{"for an upgrade", []string{a("sqlbrain_members", `state="stopped"`, "0x5 1x20 0x20")}, nil},
		{"one is removed", []string{a("sqlbrain_members", `state="alive"`, "2x40"),
			a("sqlbrain_members", `state="stopped"`, "0x40")}, nil},
	},
	"SqlbrainFollowerBehind": {
		{"far", []string{
			a("etcd_debugging_mvcc_current_revision", "", "20000+100x20"),
			b("etcd_debugging_mvcc_current_revision", "", "500x20"),
		}, []string{"b"}},
		{"as scrapes are apart", []string{
			a("etcd_debugging_mvcc_current_revision", "", "20000+300x20"),
			b("etcd_debugging_mvcc_current_revision", "", "11000+300x20"),
		}, nil},
		{"it catches up", []string{
			a("etcd_debugging_mvcc_current_revision", "", "20000x20"),
			b("etcd_debugging_mvcc_current_revision", "", "0x2 20000x16"),
		}, nil},
	},
	"SqlbrainForwardingLost": {
		{"again and again", []string{b("sqlbrain_forwarded_requests_total", `outcome="lost"`, "0+1x40")}, []string{"b"}},
		{"those that were answered", []string{
			b("sqlbrain_forwarded_requests_total", `outcome="answered"`, "0+100x40"),
			b("sqlbrain_forwarded_requests_total", `outcome="lost"`, "3x40"),
		}, nil},
	},
	"SqlbrainDatabaseErrors": {
		{"of two kinds", []string{
			a("sqlbrain_sql_errors_total", `kind="other",statement="list"`, "0+2x40"),
			a("sqlbrain_sql_errors_total", `kind="uncertain",statement="commit_tx"`, "0+2x40"),
		}, []string{"a"}},
		{"a failover", []string{a("sqlbrain_sql_errors_total", `kind="unavailable",statement="get"`, "0x5 20x40")}, nil},
		{"callers give up", []string{a("sqlbrain_sql_errors_total", `kind="context",statement="list"`, "0+30x40")}, nil},
	},
	"SqlbrainDatabaseReconnects": {
		{"to and fro", []string{a("sqlbrain_sql_reconnects_total", "", "0x4 1x4 2x4 3x4 4x4 5x4 6x4 7x4 8x4")},
			[]string{"a"}},
		{"a failover", []string{a("sqlbrain_sql_reconnects_total", "", "0x10 1x50")}, nil},
	},
	"SqlbrainCommitRetries": {
		{"both kinds together", []string{a("sqlbrain_sql_commit_retries_total", "", "0+20x40"),
			a("sqlbrain_commit_retries_total", "", "0+20x40")}, []string{"a"}},
		{"now and then", []string{a("sqlbrain_sql_commit_retries_total", "", "0+10x40"),
			a("sqlbrain_commit_retries_total", "", "0+1x40")}, nil},
	},
	"SqlbrainCommitsInDoubt": {
		{"a stream", []string{a("sqlbrain_commit_in_doubt_total", "", "0+1x40")}, []string{"a"}},
		{"a failover", []string{a("sqlbrain_commit_in_doubt_total", "", "0x10 3x60")}, nil},
	},
	"SqlbrainCommitsSlow": {
		{"every second one", []string{
			a("sqlbrain_commit_duration_seconds_bucket", `le="0.1"`, "0+50x40"),
			a("sqlbrain_commit_duration_seconds_bucket", `le="0.8"`, "0+100x40"),
			a("sqlbrain_commit_duration_seconds_bucket", `le="+Inf"`, "0+100x40"),
		}, []string{"a"}},
		{"one of a thousand", []string{
			a("sqlbrain_commit_duration_seconds_bucket", `le="0.1"`, "0+999x40"),
			a("sqlbrain_commit_duration_seconds_bucket", `le="0.8"`, "0+1000x40"),
			a("sqlbrain_commit_duration_seconds_bucket", `le="+Inf"`, "0+1000x40"),
		}, nil},
		{"no writes", []string{a("sqlbrain_commit_duration_seconds_bucket", `le="0.1"`, "5x40"),
			a("sqlbrain_commit_duration_seconds_bucket", `le="+Inf"`, "9x40")}, nil},
	},
	"SqlbrainWritesQueue": {
		{"for two seconds", []string{
			a("sqlbrain_request_pipeline_duration_seconds_bucket", `le="0.8"`, "0x40"),
			a("sqlbrain_request_pipeline_duration_seconds_bucket", `le="3.2"`, "0+100x40"),
			a("sqlbrain_request_pipeline_duration_seconds_bucket", `le="+Inf"`, "0+100x40"),
		}, []string{"a"}},
		{"hardly", []string{
			a("sqlbrain_request_pipeline_duration_seconds_bucket", `le="0.8"`, "0+100x40"),
			a("sqlbrain_request_pipeline_duration_seconds_bucket", `le="+Inf"`, "0+100x40"),
		}, nil},
	},
	"SqlbrainConnectionsExhausted": {
		{"two reads always wait", []string{a("go_sql_wait_duration_seconds_total", `db_name="read"`, "0+60x40")},
			[]string{"a"}},
		{"commits wait", []string{a("go_sql_wait_duration_seconds_total", `db_name="write"`, "0+60x40")}, nil},
		{"reads hardly wait", []string{a("go_sql_wait_duration_seconds_total", `db_name="read"`, "0+3x40")}, nil},
	},
	"SqlbrainSQLiteLogLarge": {
		{"of one member", []string{a("sqlbrain_sqlite_log_bytes", "", "40000000x40"),
			b("sqlbrain_sqlite_log_bytes", "", "900000000x40")}, []string{"b"}},
		{"for a moment", []string{a("sqlbrain_sqlite_log_bytes", "", "40000000x5 900000000x5 60000000x30")}, nil},
	},
	"SqlbrainSQLiteCheckpointsFail": {
		{"the first time", []string{a("sqlbrain_sqlite_checkpoints_total", `result="failed"`, "0x10 1x12")}, []string{"a"}},
		{"some are partial", []string{a("sqlbrain_sqlite_checkpoints_total", `result="partial"`, "0+1x40")}, nil},
		{"long ago", []string{a("sqlbrain_sqlite_checkpoints_total", `result="failed"`, "7x40")}, nil},
	},
	"SqlbrainCompactionBehind": {
		{"for an hour", []string{a("sqlbrain_compaction_lag_revisions", "", "100x150"),
			a("etcd_server_is_leader", "", "1x150")}, []string{"a"}},
		{"what led before", []string{b("sqlbrain_compaction_lag_revisions", "", "100x150"),
			b("etcd_server_is_leader", "", "0x150")}, nil},
		{"every compaction takes its time", []string{
			a("sqlbrain_compaction_lag_revisions", "", "100x38 0 100x38 0 100x38 0 100x30"),
			a("etcd_server_is_leader", "", "1x150"),
		}, nil},
	},
	"SqlbrainCompactionErrors": {
		{"each time", []string{a("sqlbrain_compaction_errors_total", "", "0x10 1x10 2x10 3x10 4x10 5x10")}, job},
		{"once", []string{a("sqlbrain_compaction_errors_total", "", "0x10 1x80")}, nil},
	},
	"SqlbrainNotCompacted": {
		{"much is written", []string{a("etcd_debugging_mvcc_current_revision", "", "0+100x480"),
			a("etcd_debugging_mvcc_compact_revision", "", "0x480")}, job},
		{"and compacted", []string{a("etcd_debugging_mvcc_current_revision", "", "0+100x480"),
			a("etcd_debugging_mvcc_compact_revision", "", "0x100 5000x180 20000x200")}, nil},
		{"little is written", []string{a("etcd_debugging_mvcc_current_revision", "", "0+1x480"),
			a("etcd_debugging_mvcc_compact_revision", "", "0x480")}, nil},
	},
	"SqlbrainQuotaNear": {
		{"nine tenths", []string{a("etcd_mvcc_db_total_size_in_use_in_bytes", "", "900x40"),
			a("etcd_server_quota_backend_bytes", "", "1000x40")}, []string{"a"}},
		{"half", []string{a("etcd_mvcc_db_total_size_in_use_in_bytes", "", "500x40"),
			a("etcd_server_quota_backend_bytes", "", "1000x40")}, nil},
		{"there is none", []string{a("etcd_mvcc_db_total_size_in_use_in_bytes", "", "900x40")}, nil},
	},
	"SqlbrainNoSpace": {
		{"the leader's disk is full", []string{a("sqlbrain_no_space", "", "0x3 1x12"), b("sqlbrain_no_space", "", "0x15")},
			job},
		{"for a moment", []string{a("sqlbrain_no_space", "", "0x3 1 0x12")}, nil},
	},
	"SqlbrainNoBackup": {
		{"the place is away", []string{a("sqlbrain_backup_age_seconds", "", "6 6 10+30x15")}, job},
		{"for a moment", []string{a("sqlbrain_backup_age_seconds", "", "6x3 310 6x12")}, nil},
		{"another member leads", []string{a("sqlbrain_backup_age_seconds", "", "6x10 _x10"),
			b("sqlbrain_backup_age_seconds", "", "_x12 20 6x8")}, nil},
	},
	"SqlbrainBackupGap": {
		{"a new base", []string{a("sqlbrain_backup_gaps_total", "", "0x10 1x5")}, job},
		{"long ago", []string{a("sqlbrain_backup_gaps_total", "", "7x40"), b("sqlbrain_backup_gaps_total", "", "_x9 0x30")},
			nil},
	},
	"SqlbrainAuditLogFailing": {
		{"one of two", []string{a("sqlbrain_audit_failing", "", "0x12"), b("sqlbrain_audit_failing", "", "0x3 1x12")},
			[]string{"b"}},
		{"for a moment", []string{a("sqlbrain_audit_failing", "", "0x3 1 0x12")}, nil},
	},
	"SqlbrainWatchersSlow": {
		{"some, of one member", []string{a("etcd_debugging_mvcc_slow_watcher_total", "", "0x40"),
			b("etcd_debugging_mvcc_slow_watcher_total", "", "3x40")}, []string{"b"}},
		{"for a moment", []string{a("etcd_debugging_mvcc_slow_watcher_total", "", "0x5 3x10 0x30")}, nil},
		{"of an etcd", []string{strange("etcd_debugging_mvcc_slow_watcher_total", "3x40")}, nil},
	},
	"SqlbrainWatchRingTooSmall": {
		{"from the table", []string{a("sqlbrain_watch_catchup_total", `from="store"`, "0+300x80")}, []string{"a"}},
		{"from memory", []string{a("sqlbrain_watch_catchup_total", `from="ring"`, "0+300x80")}, nil},
		{"all clients come back", []string{a("sqlbrain_watch_catchup_total", `from="store"`, "0x10 3000x70")}, nil},
	},
	"SqlbrainWatchSourceErrors": {
		{"they go on", []string{a("sqlbrain_watch_source_errors_total", "", "0+1x40")}, []string{"a"}},
		{"long ago", []string{a("sqlbrain_watch_source_errors_total", "", "7x40")}, nil},
	},
	"SqlbrainRangeCacheThrashes": {
		{"all the time", []string{a("sqlbrain_range_cache_evictions_total", "", "0+60x150")}, []string{"a"}},
		{"at times", []string{a("sqlbrain_range_cache_evictions_total", "", "0+15x150")}, nil},
		{"a client lists everything", []string{a("sqlbrain_range_cache_evictions_total", "", "0x10 9000x140")}, nil},
	},
}
