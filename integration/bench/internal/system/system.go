package system

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	Dir      string // of all data; what is compared must share a disk
	// BufferPool and RedoLog are the sizes of InnoDB's cache and log in bytes; 1 GiB
	// if they are 0.
	BufferPool, RedoLog int64
	// Quota is etcd's --quota-backend-bytes, 8 GiB if it is 0: its default of 2 GiB
	// ends before the data does.
	Quota int64
}

// Running is a system with its data. It is not safe for concurrent use.
type Running struct {
	System System
	env    *Environment
	dir    string
	nodes  []*node
	db     *database // nil: the engine is not a server
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

// node is one process of the product.
type node struct {
	name      string
	client    port
	peer      port
	process   *process.Process
	log       string
	directory string
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
	return r, r.AddNode(ctx)
}

// AddNode starts another server of the product on the same data, and returns when
// it answers.
func (r *Running) AddNode(ctx context.Context) error {
	n := &node{name: fmt.Sprintf("n%d", len(r.nodes)+1)}
	n.log = filepath.Join(r.dir, n.name+".log")
	n.directory = filepath.Join(r.dir, n.name)
	var err error
	if n.client, err = reservePort(); err != nil {
		return err
	}
	if n.peer, err = reservePort(); err != nil {
		return errors.Join(err, n.client.Close())
	}
	r.nodes = append(r.nodes, n)
	return r.StartNode(ctx, len(r.nodes)-1)
}

// StartNode starts a node that was stopped or killed on the data it had, and
// returns when it answers.
func (r *Running) StartNode(ctx context.Context, i int) error {
	n := r.nodes[i]
	name, args, err := r.command(n)
	if err != nil {
		return err
	}
	if n.process, err = process.Start(process.Options{Dir: r.dir, Log: n.log}, name, args...); err != nil {
		return err
	}
	c, err := Connect(n.endpoint())
	if err != nil {
		return err
	}
	err = n.process.Await(ctx, readyWait, readyPoll, func(ctx context.Context) error {
		_, err := c.Get(ctx, "/registry/ready", clientv3.WithLimit(1))
		return err
	})
	return errors.Join(err, c.Close())
}

// Connect returns a client that finds a server that was started again at once.
func Connect(endpoints ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: endpoints, Logger: zap.NewNop(), DialTimeout: 5 * time.Second,
		DialOptions: quickReconnect(), BackoffWaitBetween: 5 * time.Millisecond,
	})
}

func (n *node) endpoint() string { return fmt.Sprintf("http://127.0.0.1:%d", n.client.number) }

// Endpoint is the client URL of a node, counted from 0.
func (r *Running) Endpoint(i int) string { return r.nodes[i].endpoint() }

// Server is the process id of a node.
func (r *Running) Server(i int) int { return r.nodes[i].process.ID() }

// Database is the process id of the database; 0 if that is in the server, or was not started here.
func (r *Running) Database() int {
	if r.db == nil || r.db.process == nil {
		return 0
	}
	return r.db.process.ID()
}

// Processes are the ids of all processes: the servers', and the database's.
func (r *Running) Processes() []int {
	var ids []int
	for _, n := range r.nodes {
		if n.process != nil && n.process.Running() {
			ids = append(ids, n.process.ID())
		}
	}
	if id := r.Database(); id != 0 {
		ids = append(ids, id)
	}
	return ids
}

// StopNode ends a node in order.
func (r *Running) StopNode(i int) error { return r.nodes[i].process.Stop() }

// KillNode ends a node at once.
func (r *Running) KillNode(i int) error { return r.nodes[i].process.Kill() }

// Ended returns an error if a process ended unexpectedly, nil while all run.
func (r *Running) Ended() error {
	var processes []*process.Process
	for _, n := range r.nodes {
		processes = append(processes, n.process)
	}
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

// Bytes is what the data takes on disk.
func (r *Running) Bytes() (int64, error) {
	var total int64
	err := filepath.WalkDir(r.dir, func(_ string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // gone since it was listed
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil {
			total += diskUse(info)
		}
		return err
	})
	return total, err
}

// Close ends all processes and removes the data.
func (r *Running) Close() error {
	var errs []error
	for _, n := range r.nodes {
		if n.process != nil {
			errs = append(errs, n.process.Kill())
		}
		errs = append(errs, n.client.Close(), n.peer.Close())
	}
	if r.db != nil {
		errs = append(errs, r.db.close())
	}
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}
