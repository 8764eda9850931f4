package harness

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// Group is MySQL's Group Replication in single-primary mode.
var Group = Replication{Name: "group", engine: enginetest.MySQL, find: findMySQL,
	settings: groupSettings, join: joinGroup,
	primary: groupPrimary,
	members: "SELECT COUNT(*) FROM performance_schema.replication_group_members"}

func findMySQL() (*serverProgram, error) {
	path, err := enginetest.MySQL.Program()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMissing, err)
	}
	return &serverProgram{path: path, small: "--innodb-redo-log-capacity=64M"}, nil
}

func groupSettings(d *Replicated, i int) []string {
	var seeds []string
	for _, m := range d.members {
		seeds = append(seeds, m.place.at(m.groupPorts[0]))
	}
	return []string{
		"--mysqlx=OFF", "--report-host=" + d.members[i].place.host(), fmt.Sprintf("--report-port=%d", d.members[i].port),
		"--log-bin=binlog", "--gtid-mode=ON", "--enforce-gtid-consistency=ON",
		"--plugin-load-add=group_replication.so",
		"--group-replication-group-name=" + d.id, "--group-replication-start-on-boot=OFF",
		"--group-replication-local-address=" + seeds[i], "--group-replication-group-seeds=" + strings.Join(seeds, ","),
		"--group-replication-recovery-get-public-key=ON", "--group-replication-recovery-reconnect-interval=5",
		// Writes must be rejected until it has joined.
		"--super-read-only=ON",
	}
}

// joinGroup starts Group Replication on a member that has not, and returns when the
// member is online. It is called again while it fails.
func joinGroup(ctx context.Context, d *Replicated, i int, first bool) error {
	m := d.members[i]
	state, err := groupState(ctx, m)
	if err != nil {
		return err
	}
	if state == "" || state == "OFFLINE" || state == "ERROR" {
		if _, err := m.admin.ExecContext(ctx, "STOP GROUP_REPLICATION"); err != nil {
			return err
		}
		conn, err := m.admin.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close() //nolint:errcheck // only returns it to the pool
		statements := []string{"START GROUP_REPLICATION USER='recovery', PASSWORD='" + password + "'"}
		if first {
			statements = append(append([]string{"SET GLOBAL group_replication_bootstrap_group = ON"}, statements...),
				"SET GLOBAL group_replication_bootstrap_group = OFF")
		}
		for _, s := range statements {
			if _, err := conn.ExecContext(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		if state, err = groupState(ctx, m); err != nil {
			return err
		}
	}
	if state != "ONLINE" {
		return fmt.Errorf("its state is %q", state)
	}
	// A member that was frozen does not know at once that it was expelled. The primary does.
	p := groupPrimary(ctx, d)
	if p < 0 {
		return errors.New("the group has no primary")
	}
	var online bool
	err = d.members[p].admin.QueryRowContext(ctx,
		"SELECT COUNT(*) > 0 FROM performance_schema.replication_group_members WHERE member_port = ? AND "+
			"member_state = 'ONLINE'", m.port).Scan(&online)
	if err == nil && !online {
		err = errors.New("the primary does not see it")
	}
	return err
}

func groupState(ctx context.Context, m *server) (string, error) {
	var state string
	err := ask(ctx, m, "SELECT member_state FROM performance_schema.replication_group_members WHERE member_id "+
		"= @@server_uuid", &state)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return state, err
}

// groupPrimary returns the member that the majority says is the primary, if it takes
// writes: a member that was frozen still believes for a while that it is the primary.
func groupPrimary(ctx context.Context, d *Replicated) int {
	votes := map[int]int{} // by port
	for _, m := range d.members {
		var port int
		if groupAnswer(ctx, m, `SELECT member_port FROM performance_schema.replication_group_members
			WHERE member_role = 'PRIMARY' AND member_state = 'ONLINE'`, &port) == nil {
			votes[port]++
		}
	}
	running := slices.DeleteFunc(slices.Clone(d.members), func(m *server) bool { return m.process == nil })
	for i, m := range d.members {
		var writable bool
		if votes[m.port] > len(running)/2 && groupAnswer(ctx, m, "SELECT @@GLOBAL.super_read_only = 0", &writable) == nil &&
			writable {
			return i
		}
	}
	return -1
}

// groupAnswer asks a member that may be down or frozen.
func groupAnswer(ctx context.Context, m *server, query string, answer any) error {
	if m.process == nil || !m.process.Running() {
		return errors.New("it does not run")
	}
	return ask(ctx, m, query, answer)
}
