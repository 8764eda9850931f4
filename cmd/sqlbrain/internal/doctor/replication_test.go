package doctor

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// replication judges a server that replicates as vars and status say.
func replication(t *testing.T, vars, status map[string]string, members []groupMember, err error) Finding {
	t.Helper()
	s := &server{examination: &examination{Report: &Report{}}, version: mysqlVersion, vars: vars, status: status}
	s.checkReplication(members, err)
	require.Len(t, s.Findings, 1)
	return s.Findings[0]
}

// with returns base with pairs of names and values.
func with(base map[string]string, pairs ...string) map[string]string {
	all := map[string]string{}
	for name, value := range base {
		all[name] = value
	}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return all
}

func TestGaleraIsChecked(t *testing.T) {
	vars := map[string]string{"wsrep_on": "ON", "wsrep_provider": "/usr/lib/galera/libgalera_smm.so",
		"wsrep_sync_wait": "1", "wsrep_dirty_reads": "OFF"}
	status := map[string]string{"wsrep_ready": "ON", "wsrep_cluster_status": "Primary", "wsrep_cluster_size": "3"}
	require.Equal(t, OK, replication(t, vars, status, nil, nil).Status)
	require.Equal(t, Warn, replication(t, vars, with(status, "wsrep_cluster_size", "2"), nil, nil).Status)
	require.Equal(t, Fail, replication(t, vars, with(status, "wsrep_ready", "OFF"), nil, nil).Status)
	require.Equal(t, Fail, replication(t, vars, with(status, "wsrep_cluster_status", "non-Primary"), nil, nil).Status)
	require.Equal(t, Fail, replication(t, with(vars, "wsrep_sync_wait", "6"), status, nil, nil).Status)
	require.Equal(t, Fail, replication(t, with(vars, "wsrep_dirty_reads", "ON"), status, nil, nil).Status)
}

func TestGroupReplicationIsChecked(t *testing.T) {
	vars := map[string]string{"group_replication_group_name": "g",
		"group_replication_consistency": "BEFORE_ON_PRIMARY_FAILOVER", "group_replication_single_primary_mode": "ON"}
	primary, other := groupMember{true, "ONLINE", "PRIMARY"}, groupMember{false, "ONLINE", "SECONDARY"}
	gone := groupMember{false, "UNREACHABLE", "SECONDARY"}
	whole := []groupMember{primary, other, other}
	require.Equal(t, OK, replication(t, vars, nil, whole, nil).Status)
	require.Equal(t, Fail, replication(t, with(vars, "group_replication_consistency", "EVENTUAL"), nil, whole, nil).Status)
	require.Equal(t, Warn, replication(t, with(vars, "group_replication_single_primary_mode", "OFF"), nil, whole,
		nil).Status)
	require.Equal(t, Warn, replication(t, vars, nil, nil, errHidden).Status)
	require.Equal(t, Warn, replication(t, vars, nil, nil, errors.New("some error")).Status)
	require.Equal(t, Warn, replication(t, vars, nil, []groupMember{primary, other}, nil).Status)
	require.Equal(t, Warn, replication(t, vars, nil, []groupMember{primary, other, gone}, nil).Status)
	require.Equal(t, Fail, replication(t, vars, nil, []groupMember{primary, gone, gone}, nil).Status)
	require.Equal(t, Fail, replication(t, vars, nil, []groupMember{{true, "ONLINE", "SECONDARY"}, other, other},
		nil).Status)
	require.Equal(t, Fail, replication(t, vars, nil, []groupMember{{true, "OFFLINE", ""}}, nil).Status)
	require.Equal(t, Fail, replication(t, vars, nil, nil, nil).Status)
}

func TestSemiSynchronousReplicationIsChecked(t *testing.T) {
	for _, c := range []struct{ source, replica string }{{"source", "replica"}, {"master", "slave"}} {
		p := "rpl_semi_sync_" + c.source + "_"
		vars := map[string]string{p + "enabled": "ON", p + "wait_point": "AFTER_SYNC", p + "timeout": "4294967295",
			p + "wait_no_" + c.replica: "ON"}
		status := map[string]string{p + "status": "ON"}
		require.Equal(t, OK, replication(t, vars, status, nil, nil).Status)
		for _, fault := range [][2]string{{"wait_point", "AFTER_COMMIT"}, {"timeout", "10000"},
			{"wait_no_" + c.replica, "OFF"}} {
			f := replication(t, with(vars, p+fault[0], fault[1]), status, nil, nil)
			require.Equal(t, Warn, f.Status, "%+v", fault)
			require.Contains(t, f.Detail, p+fault[0])
			require.NotEmpty(t, f.Advice)
		}
		require.Equal(t, Warn, replication(t, vars, map[string]string{p + "status": "OFF"}, nil, nil).Status)
	}
}

func TestProxiesAreDetected(t *testing.T) {
	for _, c := range []struct{ greeting, version, comment, want string }{
		{"10.11.6-MariaDB-log", "10.11.6-MariaDB-log", "", ""},
		{"5.5.5-10.11.6-MariaDB-log", "10.11.6-MariaDB-log", "", ""},
		{"9.7.0", "9.7.0", "MySQL Community Server - GPL", ""},
		{"", "9.7.0", "", ""},
		{"8.0.11", "9.7.0", "(ProxySQL)", "ProxySQL"},
		{"8.0.11-router", "8.0.11", "", "MySQL Router"},
		{"8.0.30", "9.7.0", "", `something that calls itself "8.0.30"`},
	} {
		require.Equal(t, c.want, proxyOf(c.greeting, c.version, c.comment), "%+v", c)
	}
}
