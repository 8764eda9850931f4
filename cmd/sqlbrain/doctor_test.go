package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/doctor"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// TestDoctorOnEachProduct: a server as it should be has no findings about what
// makes it safe, and each fault is found on the real one.
func TestDoctorOnEachProduct(t *testing.T) {
	onProducts(t, func(t *testing.T, p enginetest.Product) {
		server := p.StartServer(t)
		raw := newUser(t, server.URL(), "ALL PRIVILEGES")
		_, found := examined(t, "--datastore", raw)
		checks := []string{"timeouts"}
		if p.Can(enginetest.FlushSetting) {
			checks = append(checks, "durability", "flushes", "route")
		}
		for _, check := range checks {
			require.Equal(t, doctor.OK, found[check].Status, "%+v", found[check])
		}
		for _, fault := range []struct {
			set, check, undo string
			needs            enginetest.Ability
		}{
			{"SET GLOBAL innodb_flush_log_at_trx_commit = 2", "durability", "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
				enginetest.FlushSetting},
			{"SET GLOBAL wait_timeout = 20", "timeouts", "SET GLOBAL wait_timeout = 28800", ""},
			{"SET GLOBAL max_execution_time = 500", "timeouts", "SET GLOBAL max_execution_time = 0", enginetest.ExecutionTime},
			{"SET GLOBAL max_statement_time = 0.5", "timeouts", "SET GLOBAL max_statement_time = 0", enginetest.StatementTime},
			// No server replicates here.
			{"SET GLOBAL rpl_semi_sync_master_enabled = ON", "replication", "SET GLOBAL rpl_semi_sync_master_enabled = OFF",
				enginetest.SemiSynchronous},
		} {
			if !p.Can(fault.needs) {
				continue
			}
			enginetest.Exec(t, server.URL(), fault.set)
			_, found := examined(t, "--datastore", raw)
			require.Equal(t, doctor.Warn, found[fault.check].Status, "%s: %+v", fault.set, found[fault.check])
			enginetest.Exec(t, server.URL(), fault.undo)
		}
	})
}

// TestTheConsoleShowsWhatDoctorFinds: in the process that serves the database, which continues.
func TestTheConsoleShowsWhatDoctorFinds(t *testing.T) {
	for name, database := range map[string]func(t *testing.T) string{
		"SQLite": func(t *testing.T) string { return sqliteURL(t) },
		"server": func(t *testing.T) string { return newUser(t, enginetest.StartServer(t).URL(), "ALL PRIVILEGES") },
	} {
		t.Run(name, func(t *testing.T) {
			raw := database(t)
			n := startNode(t, "serve", "--console", "--datastore", raw)
			for i := range 3 {
				n.put(t, "k", fmt.Sprint(i))
				var got struct{ Findings []doctor.Finding }
				require.NoError(t, json.Unmarshal([]byte(body(t, n.endpoint+"/ui/api/doctor")), &got))
				_, found := examined(t, "--datastore", raw)
				require.Len(t, got.Findings, len(found))
				for _, f := range got.Findings {
					require.Equal(t, found[f.Check].Status, f.Status, "%+v", f)
					require.NotEqual(t, doctor.Fail, f.Status, "%+v", f)
				}
			}
			require.Zero(t, n.stop())
		})
	}
}

// TestDoctorFindsConnectionsThatAreSpread over two servers, as a name with two
// addresses does, or a proxy.
func TestDoctorFindsConnectionsThatAreSpread(t *testing.T) {
	var addresses []string
	var raw string
	for range 2 {
		server := enginetest.StartServer(t)
		enginetest.Exec(t, server.URL(), "CREATE USER app@'%' IDENTIFIED BY 'secret'", "GRANT ALL ON *.* TO app@'%'")
		raw = changed(t, server.URL(), func(u *url.URL) {
			addresses = append(addresses, u.Host)
			u.User = url.UserPassword("app", "secret")
		})
	}
	next := 0
	at := enginetest.Forward(t, func() string {
		next++
		return addresses[next%len(addresses)]
	})
	a, found := examined(t, "--datastore", changed(t, raw, func(u *url.URL) { u.Host = at }))
	require.Equal(t, 1, a.code)
	require.Equal(t, doctor.Fail, found["route"].Status, "%+v", found["route"])
}
