package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/process"
)

const (
	readyWait = 5 * time.Minute // a large database that was killed is read again first
	readyPoll = 2 * time.Millisecond
)

// Product is a server that is compared.
type Product string

// The products.
const (
	Etcd     Product = "etcd"
	Sqlbrain Product = "sqlbrain"
	Kine     Product = "kine"
)

// Engine is the database under a product.
type Engine string

// The engines.
const (
	None    Engine = ""
	SQLite  Engine = "sqlite"
	MySQL   Engine = "mysql"
	MariaDB Engine = "mariadb"
	TiDB    Engine = "tidb"
)

// Server reports whether the engine is a separate server.
func (e Engine) Server() bool { return e == MySQL || e == MariaDB || e == TiDB }

// System is a product on an engine.
type System struct {
	Product Product
	Engine  Engine
	// Loose is for kine on SQLite as kine sets it up by default: a commit is not on
	// disk before it is acknowledged, and may be lost with the machine's power.
	Loose bool
}

// All are the systems there are.
var All = []System{
	{Product: Etcd},
	{Product: Sqlbrain, Engine: SQLite}, {Product: Sqlbrain, Engine: MySQL}, {Product: Sqlbrain, Engine: MariaDB},
	{Product: Sqlbrain, Engine: TiDB},
	{Product: Kine, Engine: SQLite}, {Product: Kine, Engine: SQLite, Loose: true}, {Product: Kine, Engine: MySQL},
	{Product: Kine, Engine: MariaDB}, {Product: Kine, Engine: TiDB},
}

// Name is what a system is called in flags and results.
func (s System) Name() string {
	name := string(s.Product)
	if s.Engine != None {
		name += "-" + string(s.Engine)
	}
	if s.Loose {
		name += "-loose"
	}
	return name
}

// Parse returns the systems of those names.
func Parse(names []string) ([]System, error) {
	var found []System
	for _, name := range names {
		i := slices.IndexFunc(All, func(s System) bool { return s.Name() == name })
		if i < 0 {
			var known []string
			for _, s := range All {
				known = append(known, s.Name())
			}
			return nil, fmt.Errorf("system %q: want some of %s", name, strings.Join(known, ", "))
		}
		found = append(found, All[i])
	}
	return found, nil
}

// Environment is where systems run. It is not safe for concurrent use.
type Environment struct {
	Programs Programs
	Dir      string   // of all data; what is compared must share a disk
	Database []string // arguments of MySQL and MariaDB after all others
	RedoLog  int64    // the size of InnoDB's log in bytes; 1 GiB if it is 0
}

// Running is a system with its data. It is not safe for concurrent use.
type Running struct {
	System       System
	env          *Environment
	dir          string
	client, peer port
	process      *process.Process
	db           *database // nil: the engine is not a server
	first        *Running  // the member that this one joins; nil: this is the first one
}

// port is a TCP port of the loopback interface that is reserved until Close.
type port struct {
	io.Closer
	number int
}

func reservePort() (p port, err error) {
	p.number, p.Closer, err = enginetest.ReservePort()
	return p, err
}

// Start starts a system on fresh data, and returns when it answers. The caller must
// close the returned value, also after an error.
func (e *Environment) Start(ctx context.Context, s System) (*Running, error) {
	dir, err := os.MkdirTemp(e.Dir, s.Name()+"-")
	if err != nil {
		return nil, err
	}
	r := &Running{System: s, env: e, dir: dir}
	if s.Engine.Server() {
		if err := os.Chmod(dir, 0o755); err != nil { // the database's user passes through
			return r, err
		}
		if r.db, err = e.startDatabase(ctx, s.Engine, dir); err != nil {
			return r, err
		}
	}
	return r, r.start(ctx)
}

// start starts the product, and returns when it answers.
func (r *Running) start(ctx context.Context) error {
	if err := r.reserve(); err != nil {
		return err
	}
	if err := r.launch(); err != nil {
		return err
	}
	return r.await(ctx)
}

// reserve reserves the ports of the product.
func (r *Running) reserve() (err error) {
	if r.client, err = reservePort(); err != nil {
		return err
	}
	r.peer, err = reservePort()
	return err
}

// launch starts the product.
func (r *Running) launch() error {
	name, args, err := r.command()
	if err == nil {
		r.process, err = process.Start(process.Options{Dir: r.dir, Log: filepath.Join(r.dir, "log")}, name, args...)
	}
	return err
}

// await returns when the product answers.
func (r *Running) await(ctx context.Context) error {
	c, err := r.Connect()
	if err != nil {
		return err
	}
	err = r.process.Await(ctx, readyWait, readyPoll, func(ctx context.Context) error {
		_, err := c.Get(ctx, "/registry/ready", clientv3.WithLimit(1))
		return err
	})
	return errors.Join(err, c.Close())
}

// Connect returns a client of the product, whose answers may have any size.
func (r *Running) Connect() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{r.endpoint()}, Logger: zap.NewNop(),
		DialTimeout: 5 * time.Second, MaxCallRecvMsgSize: math.MaxInt32})
}

func (r *Running) endpoint() string { return fmt.Sprintf("http://127.0.0.1:%d", r.client.number) }
func (r *Running) peerURL() string  { return fmt.Sprintf("http://127.0.0.1:%d", r.peer.number) }

// Database is the process id of the database; 0 if that is in the server, or was not started here.
func (r *Running) Database() int {
	if r.db == nil || r.db.process == nil {
		return 0
	}
	return r.db.process.ID()
}

// Processes are the ids of all processes: the server's, and the database's.
func (r *Running) Processes() []int {
	ids := []int{r.process.ID()}
	if id := r.Database(); id != 0 {
		ids = append(ids, id)
	}
	return ids
}

// Ended returns an error if a process ended unexpectedly, nil while all run.
func (r *Running) Ended() error {
	processes := []*process.Process{r.process}
	if r.Database() != 0 {
		processes = append(processes, r.db.process)
	}
	for _, p := range processes {
		if !p.Running() {
			return fmt.Errorf("%s ended by itself\n%s", p.Name(), p.LogTail(4000))
		}
	}
	return nil
}

// Close ends all processes and removes the data.
func (r *Running) Close() error {
	var errs []error
	if r.process != nil {
		errs = append(errs, r.process.Kill())
	}
	for _, p := range []port{r.client, r.peer} {
		if p.Closer != nil {
			errs = append(errs, p.Close())
		}
	}
	if r.db != nil {
		errs = append(errs, r.db.close())
	}
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}
