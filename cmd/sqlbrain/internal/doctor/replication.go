package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
)

// wholeGroup is how many servers it takes that one may go and the others still are
// the majority.
const wholeGroup = 3

// groupMember is what Group Replication says of one of its servers.
type groupMember struct {
	Self  bool   `db:"self"` // it is the server that answers
	State string `db:"state"`
	Role  string `db:"role"`
}

// errHidden: the user may not read who is in the group.
var errHidden = errors.New("the user may not read performance_schema.replication_group_members")

// group returns the members of the server's group; none without a group.
func (s *server) readGroup(ctx context.Context) (members []groupMember, err error) {
	if s.vars["group_replication_group_name"] == "" {
		return nil, nil
	}
	rows, err := s.conn.QueryContext(ctx, "SELECT member_id = @@server_uuid AS self, member_state AS state, "+
		"member_role AS role FROM performance_schema.replication_group_members")
	if serverError(err) == errTableAccess {
		return nil, errHidden
	}
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // StructScan returns the error
	err = sqlx.StructScan(rows, &members)
	return members, err
}

// checkReplication says what becomes of acknowledged writes when the server goes.
func (s *server) checkReplication(members []groupMember, membersErr error) {
	switch {
	case s.galera():
		s.checkGalera()
	case s.vars["group_replication_group_name"] != "":
		s.checkGroup(members, membersErr)
	case s.vars.on("rpl_semi_sync_master_enabled"), s.vars.on("rpl_semi_sync_source_enabled"):
		s.checkSemiSync()
	case s.vars.on("log_bin") && !s.tidb():
		s.ok("replication", "a binary log is written; if an asynchronous replica is promoted, acknowledged writes can be "+
			"lost, and sqlbrain will stop and say so")
	}
}

// galera reports whether the server is a node of a Galera cluster.
func (s *server) galera() bool { return s.vars.on("wsrep_on") && s.vars["wsrep_provider"] != "none" }

func (s *server) checkGalera() {
	const check = "replication"
	size := s.status.number("wsrep_cluster_size")
	switch {
	case s.status["wsrep_ready"] != "ON" || s.status["wsrep_cluster_status"] != "Primary":
		s.add(check, Fail, fmt.Sprintf("this node of a Galera does not serve: wsrep_ready is %s, wsrep_cluster_status %s",
			s.status["wsrep_ready"], s.status["wsrep_cluster_status"]), "let it join the others, or use another node")
	case s.vars.number("wsrep_sync_wait")&1 == 0 || s.vars.on("wsrep_dirty_reads"):
		s.add(check, Fail, fmt.Sprintf("wsrep_sync_wait is %s and wsrep_dirty_reads %s, although every session sets them "+
			"to 1 and OFF", s.vars["wsrep_sync_wait"], s.vars["wsrep_dirty_reads"]),
			"a proxy seems to reset sessions: use one that keeps a session on its connection, or none")
	case size < wholeGroup:
		s.add(check, Warn, fmt.Sprintf("a Galera of %d", size),
			"it takes three (an arbitrator counts) that one may go and the others go on")
	default:
		s.ok(check, "a Galera of %d; reads wait until what others wrote is applied", size)
	}
}

func (s *server) checkGroup(members []groupMember, membersErr error) {
	const check = "replication"
	level := s.vars["group_replication_consistency"]
	if level == "EVENTUAL" {
		s.add(check, Fail, "group_replication_consistency is EVENTUAL, although every session sets it to "+
			"BEFORE_ON_PRIMARY_FAILOVER at least",
			"a proxy seems to reset sessions: use one that keeps a session on its connection, or none")
		return
	}
	if membersErr != nil {
		s.add(check, Warn, fmt.Sprintf("Group Replication, %s; %v", level, membersErr),
			"GRANT SELECT ON performance_schema.replication_group_members: without it a primary that lost the majority is "+
				"taken for one; or set group_replication_unreachable_majority_timeout")
		return
	}
	self := slices.IndexFunc(members, func(m groupMember) bool { return m.Self })
	reachable := 0
	for _, m := range members {
		if m.State == "ONLINE" || m.State == "RECOVERING" {
			reachable++
		}
	}
	switch {
	case self < 0 || members[self].State != "ONLINE":
		s.add(check, Fail, "the server is configured for a group, and is not online in it",
			"START GROUP_REPLICATION, or use another server")
	case members[self].Role != "PRIMARY":
		s.add(check, Fail, "the server is a secondary of its group",
			"use the primary, or name all members in the URL: host:port,host:port")
	case reachable*2 <= len(members):
		s.add(check, Fail, fmt.Sprintf("the server sees %d of the %d in its group", reachable, len(members)),
			"it lost the majority: see to the others")
	case len(members) < wholeGroup || reachable < len(members):
		s.add(check, Warn, fmt.Sprintf("a group of %d, of whom %d are there", len(members), reachable),
			"it takes three that one may go and the others go on")
	case !s.vars.on("group_replication_single_primary_mode"):
		s.add(check, Warn, "a group of several primaries", "each read waits for the others: use single-primary mode")
	default:
		s.ok(check, "a group of %d, %s", len(members), level)
	}
}

func (s *server) checkSemiSync() {
	const (
		check = "replication"
		brief = 24 * time.Hour
	)
	// The names differ: MySQL has had source and replica since 8.0.26.
	setting := func(tail ...string) (name, value string) {
		var names []string
		for _, t := range tail {
			names = append(names, "rpl_semi_sync_source_"+t, "rpl_semi_sync_master_"+t)
		}
		return s.vars.first(names...)
	}
	wait := func(tail string) int64 { name, _ := setting(tail); return s.vars.number(name) }
	_, active := s.status.first("rpl_semi_sync_source_status", "rpl_semi_sync_master_status")
	pointName, point := setting("wait_point")
	timeoutName, _ := setting("timeout")
	aloneName, alone := setting("wait_no_replica", "wait_no_slave")
	timeout := time.Duration(wait("timeout")) * time.Millisecond
	switch {
	case active != "ON":
		s.add(check, Warn, "semi-synchronous, but no replica acknowledges now",
			"acknowledged writes can be lost with this server: see to the replicas")
	case point != "AFTER_SYNC":
		s.add(check, Warn, fmt.Sprintf("semi-synchronous, %s is %s", pointName, point),
			"readers see commits that a failover may undo: set it to AFTER_SYNC")
	case timeout < brief:
		s.add(check, Warn, fmt.Sprintf("semi-synchronous for %s, then alone: %s", timeout, timeoutName),
			"acknowledged writes can be lost when a replica was away for so long: set it to 4294967295, and writes wait for "+
				"a replica")
	case alone == "OFF" || alone == "0":
		s.add(check, Warn, "semi-synchronous only while there are replicas: "+aloneName+" is OFF",
			"set it to ON, and writes wait for a replica")
	default:
		s.ok(check, "semi-synchronous, %s", point)
	}
}
