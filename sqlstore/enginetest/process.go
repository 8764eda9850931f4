package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	password = "sqlbrain"
	// Bounds that only a broken or starved machine reaches.
	installWait = 2 * time.Minute
	startWait   = time.Minute
	stopWait    = time.Minute

	pollEvery = 20 * time.Millisecond
	// startAttempts covers the race for the free port, which a stranger may
	// take between its choice and its use.
	startAttempts = 3
)

// process is a private server: its directory, its settings, and the running
// program if there is one. It is not safe for concurrent use.
type process struct {
	dir     *directory
	binary  string
	product Product
	port    int
	served  bool           // the port was used before, so clients know it
	held    net.PacketConn // keeps the port from other tests

	cmd     *exec.Cmd
	exited  chan struct{} // closed when cmd has ended, after waitErr is set
	waitErr error
}

// newProcess finds a server of the product and initialises a data directory for
// it. Its error wraps errNoEngine if this machine has none that can run here.
func newProcess(product Product) (*process, error) {
	binary, err := product.program()
	if err != nil {
		return nil, err
	}
	dir, err := makeDirectory()
	if err != nil {
		return nil, err
	}
	p := &process{dir: dir, binary: binary, product: product}
	if err := p.install(); err != nil {
		return nil, errors.Join(err, p.remove())
	}
	return p, nil
}

// install creates the system tables and the start-up file that sets passwords.
func (p *process) install() error {
	name := p.binary
	args := []string{"--no-defaults", "--initialize-insecure", "--datadir=" + p.dataDir(), "--tmpdir=" + p.dir.path, redoLogSize(MySQL)}
	if p.product == MariaDB {
		scripts := programs("mariadb-install-db")
		if len(scripts) == 0 {
			return fmt.Errorf("%w: %s is here, but not mariadb-install-db", errNoEngine, p.binary)
		}
		name = scripts[0]
		args = []string{"--no-defaults", "--datadir=" + p.dataDir(), "--auth-root-authentication-method=normal",
			"--skip-test-db", "--skip-name-resolve", "--tmpdir=" + p.dir.path, redoLogSize(MariaDB)}
	}
	ctx, cancel := context.WithTimeout(context.Background(), installWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = p.dir.path
	cmd.SysProcAttr = p.dir.owner.processAttributes()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initialise a database directory: %w\n%s", err, out)
	}
	// MariaDB's script makes the first user, MySQL's does not.
	sql := "CREATE USER IF NOT EXISTS root@'127.0.0.1';\n" +
		"ALTER USER root@'127.0.0.1' IDENTIFIED BY '" + password + "';\n" +
		"GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n" +
		"ALTER USER root@localhost IDENTIFIED BY '" + password + "';\n"
	return p.dir.writeFile("init.sql", sql)
}

func redoLogSize(p Product) string {
	if p == MariaDB {
		return "--innodb-log-file-size=32M"
	}
	return "--innodb-redo-log-capacity=64M"
}

func (p *process) dataDir() string { return filepath.Join(p.dir.path, "data") }
func (p *process) logFile() string { return filepath.Join(p.dir.path, "log") }

// arguments are small for a quick start, and durable: every commit is flushed.
func (p *process) arguments() []string {
	args := []string{
		"--no-defaults",
		"--datadir=" + p.dataDir(),
		// A starting server removes the temporary tables that it finds in its tmpdir.
		// In a shared one, these are other servers', which crash or fail then.
		"--tmpdir=" + p.dir.path,
		"--socket=" + filepath.Join(p.dir.path, "s"),
		"--pid-file=" + filepath.Join(p.dir.path, "pid"),
		"--port=" + strconv.Itoa(p.port),
		"--bind-address=127.0.0.1",
		"--skip-name-resolve",
		"--init-file=" + filepath.Join(p.dir.path, "init.sql"),
		"--max-connections=500",
		"--innodb-buffer-pool-size=128M",
		"--innodb-flush-log-at-trx-commit=1",
		"--skip-log-bin",
		redoLogSize(p.product),
	}
	if p.product != MariaDB {
		// The folder for LOAD DATA and the like is the package's, and need not be there.
		args = append(args, "--mysqlx=OFF", "--secure-file-priv=NULL")
	}
	return args
}

// start runs the server and returns when it answers. The port is chosen by the
// first start and kept.
func (p *process) start() error {
	if p.running() {
		return errors.New("the database server is running")
	}
	for attempt := 1; ; attempt++ {
		if !p.served {
			if err := p.reserve(); err != nil {
				return err
			}
		}
		err := p.startOnce()
		if err == nil {
			p.served = true
			return nil
		}
		err = errors.Join(err, p.kill())
		if attempt == startAttempts {
			return fmt.Errorf("start %s: %w\n%s", p.binary, err, p.logTail())
		}
	}
}

func (p *process) startOnce() error {
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the server has its own descriptor
	cmd := exec.Command(p.binary, p.arguments()...)
	cmd.Dir = p.dir.path
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = p.dir.owner.processAttributes()
	started := make(chan error, 1)
	exited := make(chan struct{})
	go func() {
		unlock := holdThread()
		defer unlock()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.waitErr = cmd.Wait()
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.cmd, p.exited = cmd, exited
	return p.awaitAnswer()
}

func (p *process) awaitAnswer() error {
	ctx, cancel := context.WithTimeout(context.Background(), startWait)
	defer cancel()
	db, err := open(p.url(""))
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // only pings were sent
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		// The ping gets a bound of its own: one swallowed by a server that is just
		// coming up must not use the whole time.
		attempt, cancelAttempt := context.WithTimeout(ctx, time.Second)
		err := db.PingContext(attempt)
		cancelAttempt()
		var answer *mysql.MySQLError
		if err == nil || errors.As(err, &answer) {
			return err // waiting does not change a server's refusal
		}
		select {
		case <-p.exited:
			return fmt.Errorf("ended while starting: %v", p.waitErr)
		case <-ctx.Done():
			return fmt.Errorf("no answer within %s: %w", startWait, err)
		case <-poll.C:
		}
	}
}

// url returns the root's URL of database, or of none if it is "".
func (p *process) url(database string) string {
	u := url.URL{
		Scheme: "mysql",
		User:   url.UserPassword("root", password),
		Host:   net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)),
		Path:   "/" + database,
	}
	return u.String()
}

func (p *process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

func (p *process) signal(s syscall.Signal) error {
	if !p.running() {
		return errors.New("the database server is not running")
	}
	return p.cmd.Process.Signal(s)
}

// stop asks the server to shut down and waits for it. A paused server goes on.
func (p *process) stop() error {
	if err := errors.Join(p.signal(syscall.SIGTERM), p.resume()); err != nil {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(stopWait):
		return errors.Join(fmt.Errorf("the database server did not stop within %s", stopWait), p.kill())
	}
}

// kill ends the server, if it runs, and waits for its end.
func (p *process) kill() error {
	if !p.running() {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.exited
	return nil
}

func (p *process) remove() error { return errors.Join(p.release(), p.dir.remove()) }

// reserve chooses the port.
func (p *process) reserve() error {
	if err := p.release(); err != nil {
		return err
	}
	port, reservation, err := reservePort()
	if err != nil {
		return err
	}
	p.port, p.held = port, reservation
	return nil
}

func (p *process) release() error {
	if p.held == nil {
		return nil
	}
	err := p.held.Close()
	p.held = nil
	return err
}

// logTail returns the end of the server's log.
func (p *process) logTail() string {
	const most = 3000
	b, err := os.ReadFile(p.logFile())
	if err != nil {
		return err.Error()
	}
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return strings.TrimSpace(string(b))
}
