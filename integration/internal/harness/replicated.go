package harness

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/process"
)

const (
	password = enginetest.Password
	// user is the account that sqlbrain's servers log in with. It is an ordinary user
	// with rights on its own database only, and may see the members of the group.
	user     = "brain"
	database = "sqlbrain"

	servers = 3
	// replicationWait bounds operations that exceed it only on a broken or starved machine.
	replicationWait = 5 * time.Minute
	// answerWait bounds each question to a member. One that was frozen never answers, and a signal that freezes it
	// takes effect some time after it was sent: the member may have answered the question before.
	answerWait = 5 * time.Second
	poll       = 50 * time.Millisecond
)

// errMissing wraps the reasons why this machine cannot run a product.
var errMissing = errors.New("no such database")

// Replication is a way to replicate.
type Replication struct {
	Name   string
	engine enginetest.Product
	find   func() (*serverProgram, error)
	// settings are those that replication adds for member i.
	settings func(d *Replicated, i int) []string
	// begin, if set, returns additional arguments for this start of member i; first makes
	// it the first of a new cluster.
	begin func(d *Replicated, i int, first bool) ([]string, error)
	// join takes a member that runs into the cluster and returns when it serves.
	join func(ctx context.Context, d *Replicated, i int, first bool) error
	// members is a query for the number of members.
	members string
	// primary is the member that accepts writes according to the answer of one member; -1
	// if that answer names none.
	primary func(ctx context.Context, d *Replicated) int
}

// Replicated is three servers that replicate. Its methods end the test when they
// fail, so only the test's own goroutine may call them.
type Replicated struct {
	t       testing.TB
	product Replication
	program *serverProgram
	id      string // of the cluster, a UUID
	dir     string
	user    *process.User // whom the servers run as; nil: this process's
	members []*server
}

type server struct {
	name       string
	place      Place
	port       int   // for clients
	groupPorts []int // for the other members
	process    *Process
	admin      *sql.DB
}

// StartReplicated starts the servers with extra arguments each, and creates an empty
// database. It skips t if the product is not available.
func StartReplicated(t testing.TB, p Replication, extra ...string) *Replicated {
	t.Helper()
	return StartReplicatedIn(t, make([]Place, servers), p, extra...)
}

// StartReplicatedIn is StartReplicated with each server in a place. Galera's must be the zero Place.
func StartReplicatedIn(t testing.TB, places []Place, p Replication, extra ...string) *Replicated {
	t.Helper()
	program, err := p.find()
	enginetest.Need(t, err, errMissing)
	d := &Replicated{t: t, product: p, program: program, id: newUUID(), dir: enginetest.Directory(t)}
	template := filepath.Join(d.dir, "template")
	if d.user, err = p.engine.Initialise(template); err != nil {
		t.Fatal(err)
	}
	for i := range servers {
		m := &server{name: fmt.Sprintf("m%d", i), place: places[i], port: enginetest.FreePort(t)}
		for range 3 {
			m.groupPorts = append(m.groupPorts, enginetest.FreePort(t))
		}
		if err := enginetest.CopyData(d.data(m), template, d.user); err != nil {
			t.Fatal(err)
		}
		d.members = append(d.members, m)
	}
	for i, m := range d.members {
		settings := append(program.settings(d.data(m), d.dir, m.place.host(), m.port), fmt.Sprintf("--server-id=%d", i+1))
		settings = append(append(settings, p.settings(d, i)...), extra...)
		// In a file: Galera's scripts would split some at the command line.
		text := "[mysqld]\n" + strings.ReplaceAll(strings.Join(settings, "\n"), "--", "") + "\n"
		file := d.data(m) + ".cnf"
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		d.start(i, i == 0)
	}
	d.Exec(d.Primary(),
		"CREATE DATABASE "+database,
		"CREATE USER "+user+"@'%' IDENTIFIED BY '"+password+"'",
		"GRANT ALL ON "+database+".* TO "+user+"@'%'",
		"CREATE DATABASE "+database+"_watch",
		"CREATE TABLE "+database+"_watch.t (a INT PRIMARY KEY, b VARCHAR(40))",
	)
	if p.Name == Group.Name {
		d.Exec(d.Primary(), "GRANT SELECT ON performance_schema.replication_group_members TO "+user+"@'%'")
	}
	d.AwaitWhole()
	return d
}

// Name is the product's name.
func (d *Replicated) Name() string { return d.product.Name }

// Size is the number of servers, running or not.
func (d *Replicated) Size() int { return len(d.members) }

// Address is where server i listens for clients.
func (d *Replicated) Address(i int) string { return d.members[i].place.at(d.members[i].port) }

// URL names the servers in this order, all of them if none is given, and the
// empty database on them.
func (d *Replicated) URL(order ...int) string {
	if len(order) == 0 {
		for i := range d.members {
			order = append(order, i)
		}
	}
	var hosts []string
	for _, i := range order {
		hosts = append(hosts, d.Address(i))
	}
	return d.URLOf(strings.Join(hosts, ","))
}

// URLOf is the URL of the database that is reached at an address, for example a proxy's.
func (d *Replicated) URLOf(address string) string {
	u := url.URL{Scheme: "mysql", User: url.UserPassword(user, password), Host: address, Path: "/" + database}
	if d.product.Name == Group.Name && d.members[0].place.Network != nil {
		// From there, a password is not sent to a server that is not verified. All have the template's key.
		u.RawQuery = "server-public-key=" + filepath.Join(d.dir, "template", "public_key.pem")
	}
	return u.String()
}

// Kill ends server i at once (SIGKILL).
func (d *Replicated) Kill(i int) { d.t.Helper(); d.members[i].process.Kill(d.t) }

// Pause freezes server i (SIGSTOP). Like a machine that disappears, it closes no
// connections.
func (d *Replicated) Pause(i int) { d.t.Helper(); d.members[i].process.Pause(d.t) }

// Resume ends a Pause.
func (d *Replicated) Resume(i int) { d.t.Helper(); d.members[i].process.Resume(d.t) }

// Start starts server i, which has ended, and returns when it is a member again.
func (d *Replicated) Start(i int) { d.t.Helper(); d.start(i, false) }

// Rejoin returns when server i, which was frozen, is a member again. If it does not
// come back by itself it is started anew.
func (d *Replicated) Rejoin(i int) {
	d.t.Helper()
	const byItself = time.Minute
	deadline := time.Now().Add(byItself)
	ctx, cancel := context.WithTimeout(context.Background(), replicationWait)
	defer cancel()
	for time.Now().Before(deadline) {
		if d.product.join(ctx, d, i, false) == nil && d.whole(ctx) {
			return
		}
		d.wait(ctx, "it does not come back")
	}
	d.Kill(i)
	d.start(i, false)
}

// whole reports whether all servers that run say that all of them are members.
func (d *Replicated) whole(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	for _, m := range d.members {
		var n int
		if m.process.Running() && (m.admin.QueryRowContext(ctx, d.product.members).Scan(&n) != nil || n != len(d.members)) {
			return false
		}
	}
	return true
}

// Primary returns the server that takes the writes; with Galera, where all do, the
// first that serves. It waits for one.
func (d *Replicated) Primary() int {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), replicationWait)
	defer cancel()
	for {
		if i := d.product.primary(ctx, d); i >= 0 {
			return i
		}
		d.wait(ctx, "no server says who is the primary")
	}
}

// Successor waits for another server than gone to take writes, and returns it.
func (d *Replicated) Successor(gone int) int {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), replicationWait)
	defer cancel()
	last := errors.New("none says that it takes writes")
	for {
		if i := d.product.primary(ctx, d); i >= 0 && i != gone {
			err := d.canWrite(ctx, i)
			if err == nil {
				return i
			}
			last = fmt.Errorf("server %d: %w", i, err)
		}
		d.wait(ctx, fmt.Sprintf("no other server took over: %v", last))
	}
}

// ask asks a member that may be frozen for one value.
func ask(ctx context.Context, m *server, query string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	return m.admin.QueryRowContext(ctx, query).Scan(answer)
}

// canWrite writes on server i.
func (d *Replicated) canWrite(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	// Another value each time: a statement that changes nothing is not replicated.
	_, err := d.members[i].admin.ExecContext(ctx, "REPLACE INTO "+database+"_watch.t VALUES (1, ?)", newUUID())
	return err
}

// Running reports whether server i was started and has not ended.
func (d *Replicated) Running(i int) bool { return d.members[i].process.Running() }

// AwaitWhole returns when every running server has all writes of the others, including
// the user that was created last.
func (d *Replicated) AwaitWhole() {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), replicationWait)
	defer cancel()
	for i := range d.members {
		for {
			var n int
			err := d.members[i].admin.QueryRowContext(ctx, "SELECT COUNT(*) FROM mysql.user WHERE user = ?", user).Scan(&n)
			if err == nil && n == 1 {
				break
			}
			d.wait(ctx, fmt.Sprintf("server %d has not got what was written: %v", i, err))
		}
	}
}

// Query returns the text that a statement answers on server i.
func (d *Replicated) Query(i int, statement string) string {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), replicationWait)
	defer cancel()
	var s sql.NullString
	if err := d.members[i].admin.QueryRowContext(ctx, statement).Scan(&s); err != nil {
		d.t.Fatalf("%s: %v", statement, err)
	}
	return s.String
}

// Empty removes what is in the database.
func (d *Replicated) Empty() {
	d.t.Helper()
	d.Exec(d.Primary(), "DROP DATABASE "+database, "CREATE DATABASE "+database)
}

// Exec runs statements on server i as its administrator.
func (d *Replicated) Exec(i int, statements ...string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), replicationWait)
	defer cancel()
	for _, s := range statements {
		if _, err := d.members[i].admin.ExecContext(ctx, s); err != nil {
			d.t.Fatalf("%s: %v\n%s", s, err, d.members[i].process.LogTail(4000))
		}
	}
}

func (d *Replicated) wait(ctx context.Context, reason string) {
	d.t.Helper()
	select {
	case <-ctx.Done():
		d.t.Fatal(reason)
	case <-time.After(poll):
	}
}

// command returns the command line that every start of a server has.
func (d *Replicated) command(m *server) []string {
	return []string{"--defaults-file=" + d.data(m) + ".cnf"}
}

func (d *Replicated) data(m *server) string { return filepath.Join(d.dir, m.name) }

func (d *Replicated) start(i int, first bool) {
	d.t.Helper()
	m := d.members[i]
	args := d.command(m)
	if d.product.begin != nil {
		more, err := d.product.begin(d, i, first)
		if err != nil {
			d.t.Fatal(err)
		}
		args = append(args, more...)
	}
	m.process = StartProcessWith(d.t, process.Options{As: d.user, Network: m.place.Network}, d.program.path, args...)
	if m.admin == nil {
		m.admin = d.open(m)
	}
	ctx, cancel := context.WithTimeout(context.Background(), replicationWait)
	defer cancel()
	for {
		err := d.product.join(ctx, d, i, first)
		if err == nil {
			return
		}
		if !m.process.Running() {
			d.t.Fatalf("server %d ended while starting\n%s", i, m.process.LogTail(8000))
		}
		if ctx.Err() != nil {
			d.t.Fatalf("server %d is not a member after %s: %v\n%s", i, replicationWait, err, m.process.LogTail(8000))
		}
		d.wait(ctx, err.Error())
	}
}

// open makes a pool for the administrator. Its connect timeout is short, because callers
// that wait for a server retry.
func (d *Replicated) open(m *server) *sql.DB {
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr = "tcp", m.place.at(m.port)
	cfg.User, cfg.Passwd = "root", password
	cfg.Timeout = time.Second
	cfg.Logger = &mysql.NopLogger{}
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	db := sql.OpenDB(c)
	d.t.Cleanup(func() {
		if err := db.Close(); err != nil {
			d.t.Error(err)
		}
	})
	return db
}

// serverProgram is a database server's binary.
type serverProgram struct {
	path  string
	small string // keeps a server small
}

// run runs a program to its end and returns what it printed.
func run(user *process.User, dir, input, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), replicationWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	out, err := process.Output(cmd, user)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return out, err
}

// settings are those of every server: durable, and quick to start.
func (p *serverProgram) settings(data, dir, host string, port int) []string {
	return []string{"--datadir=" + data, "--tmpdir=" + dir, "--socket=" + data + ".s", fmt.Sprintf("--port=%d", port),
		"--bind-address=" + host, "--pid-file=" + data + ".pid", "--secure-file-priv=", "--skip-name-resolve",
		"--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1", "--innodb-buffer-pool-size=64M",
		"--max-allowed-packet=64M", "--max-connections=500", p.small}
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
