package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/process"
)

const (
	// startWait is a bound that only a broken or starved machine reaches.
	startWait = 3 * time.Minute

	pollEvery = 20 * time.Millisecond
	// startAttempts covers the race for the free port, which a stranger may
	// take between its choice and its use.
	startAttempts = 3
)

// instance is a private server: its directory, its settings, and the running
// program if there is one. It is not safe for concurrent use.
type instance struct {
	dir     *directory
	binary  string
	product Product
	port    int
	served  bool      // the port was used before, so clients know it
	held    io.Closer // keeps the port from other tests

	program *process.Process // nil before the first start
}

// newInstance finds a server of the product and initialises a data directory for
// it. Its error wraps ErrNoEngine if this machine has none that can run here.
func newInstance(product Product) (*instance, error) {
	binary, err := product.Program()
	if err != nil {
		return nil, err
	}
	dir, err := makeDirectory()
	if err != nil {
		return nil, err
	}
	p := &instance{dir: dir, binary: binary, product: product}
	if err := p.fill(); err != nil {
		return nil, errors.Join(err, p.remove())
	}
	return p, nil
}

func (p *instance) dataDir() string   { return filepath.Join(p.dir.path, "data") }
func (p *instance) setupFile() string { return p.dataDir() + ".sql" }
func (p *instance) logFile() string   { return filepath.Join(p.dir.path, "log") }

// arguments are small for a quick start, and durable: every commit is flushed.
func (p *instance) arguments() []string {
	if p.product == tidb {
		args := []string{
			"--store=unistore", "--path=" + p.dataDir(), "--temp-dir=" + p.dir.path,
			"--socket=" + filepath.Join(p.dir.path, "s"),
			"--host=127.0.0.1", "-P=" + strconv.Itoa(p.port), "--report-status=false", "-L=warn",
		}
		if _, err := os.Stat(p.dataDir()); err != nil { // the first start makes it
			args = append(args, "--initialize-sql-file="+p.setupFile())
		}
		return args
	}
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
func (p *instance) start() error {
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
			return fmt.Errorf("start %s: %w", p.binary, err)
		}
	}
}

func (p *instance) startOnce() (err error) {
	options := process.Options{Dir: p.dir.path, Log: p.logFile(), As: p.dir.owner}
	if p.program, err = process.Start(options, p.binary, p.arguments()...); err != nil {
		return err
	}
	db, err := open(p.url(""))
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // only pings were sent
	var refusal *mysql.MySQLError
	err = p.program.Await(context.Background(), startWait, pollEvery, func(ctx context.Context) error {
		err := db.PingContext(ctx)
		if errors.As(err, &refusal) {
			return nil // waiting does not change it
		}
		return err
	})
	if err == nil && refusal != nil {
		return refusal
	}
	return err
}

// url returns the root's URL of database, or of none if it is "".
func (p *instance) url(database string) string {
	u := url.URL{
		Scheme: "mysql",
		User:   url.UserPassword("root", Password),
		Host:   net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)),
		Path:   "/" + database,
	}
	return u.String()
}

func (p *instance) running() bool { return p.program != nil && p.program.Running() }

func (p *instance) signal(s syscall.Signal) error {
	if !p.running() {
		return errors.New("the database server is not running")
	}
	return p.program.Signal(s)
}

// stop shuts the server down and waits for its end. A paused server resumes first.
func (p *instance) stop() error {
	if err := p.resume(); err != nil {
		return err
	}
	return p.program.Stop()
}

// kill ends the server, if it runs, and waits for its end.
func (p *instance) kill() error {
	if p.program == nil {
		return nil
	}
	return p.program.Kill()
}

func (p *instance) remove() error { return errors.Join(p.release(), p.dir.remove()) }

// reserve chooses the port.
func (p *instance) reserve() error {
	if err := p.release(); err != nil {
		return err
	}
	port, reservation, err := ReservePort()
	if err != nil {
		return err
	}
	p.port, p.held = port, reservation
	return nil
}

func (p *instance) release() error {
	if p.held == nil {
		return nil
	}
	err := p.held.Close()
	p.held = nil
	return err
}

// logTail returns the end of the log of all the server's lives.
func (p *instance) logTail() string {
	if p.program == nil {
		return "the server was not started"
	}
	return p.program.LogTail(3000)
}
