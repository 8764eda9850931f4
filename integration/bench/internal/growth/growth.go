package growth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/machine"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
)

// Dataset is a size of the data.
type Dataset struct {
	Keys      int `json:"keys"`
	Versions  int `json:"versions"`   // of each key, all kept
	ValueSize int `json:"value_size"` // bytes

	rewritten int  // so many keys have a version more
	versioned bool // the product counts versions
}

func (d *Dataset) String() string { return fmt.Sprintf("%dx%d", d.Keys, d.Versions) }

// Point is what was measured at one size of a system.
type Point struct {
	System string `json:"system"`
	Dataset
	Started time.Time `json:"started"`
	Load    float64   `json:"load"`              // the machine's, of the minute before
	Failure string    `json:"failure,omitempty"` // what ended it early: what follows was not measured

	LoadSeconds float64 `json:"load_seconds"`
	// LoadCPU is microseconds of CPU of server and database for each version loaded.
	LoadCPU float64 `json:"load_cpu_us"`
	// DiskBytes is how much more disk is used than before, logs included.
	DiskBytes int64   `json:"disk_bytes"`
	Get       *Series `json:"get,omitempty"`
	Page      *Series `json:"page,omitempty"` // of 500, the next one of a list each
	// Jump is a page of 500 that starts at a random key: the server has to count the keys
	// after the page anew.
	Jump   *Series `json:"jump,omitempty"`
	Count  *Series `json:"count,omitempty"` // of all
	Create *Series `json:"create,omitempty"`
	// Starts are seconds from the start of a server that was stopped in order to its
	// first answer.
	Starts []float64 `json:"starts,omitempty"`
	// IdleServerRSS is the server's memory after that, in bytes.
	IdleServerRSS int64 `json:"idle_server_rss,omitempty"`
	// Failovers are seconds from the kill of the server to the next acknowledged
	// write: of another node where Nodes is 2, else of the same one, started at once.
	Failovers  []float64   `json:"failovers,omitempty"`
	Nodes      int         `json:"nodes,omitempty"`
	Compaction *Compaction `json:"compaction,omitempty"`
}

// Compaction is the cost of one pass.
type Compaction struct {
	Garbage     int     `json:"garbage"` // versions that it removes
	Seconds     float64 `json:"seconds"`
	ServerCPU   float64 `json:"server_cpu_seconds"`
	DatabaseCPU float64 `json:"database_cpu_seconds"`
	// DatabaseSeconds is how long the server's calls of its database took, all added
	// up; sqlbrain only.
	DatabaseSeconds float64 `json:"database_seconds,omitempty"`
}

// Config says how each size is measured.
type Config struct {
	Environment *system.Environment
	Duration    time.Duration // of each series
	Repeats     int           // of starts and failovers
	Progress    io.Writer
}

const (
	connections = 8
	pageSize    = 500
	// garbage is how many versions the compaction removes, of keys that have no
	// other history.
	garbage = 10_000
)

// Measure loads the data into a fresh system and measures everything. The point records
// failures. An error means that ctx ended, or that the system was not removed.
func (cfg *Config) Measure(ctx context.Context, s system.System, d Dataset) (_ *Point, err error) {
	d.versioned = s.Product != system.Kine
	p := &Point{System: s.Name(), Dataset: d, Started: time.Now().UTC(), Load: machine.Load()}
	r, err := cfg.Environment.Start(ctx, s)
	if r != nil {
		defer func() { err = errors.Join(err, r.Close()) }()
	}
	if err == nil {
		m := measurement{cfg: cfg, r: r, p: p, d: &p.Dataset}
		err = errors.Join(m.all(ctx), m.disconnect())
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		p.Failure = err.Error()
	}
	return p, nil
}

// measurement is one size of one system being measured.
type measurement struct {
	cfg     *Config
	r       *system.Running
	p       *Point
	d       *Dataset
	clients []*clientv3.Client
	fresh   atomic.Int64 // keys that were created
}

func (m *measurement) all(ctx context.Context) error {
	if err := m.connect(m.r.Endpoint(0)); err != nil {
		return err
	}
	empty, err := m.r.Bytes()
	if err != nil {
		return err
	}
	before, began := usage(m.r), time.Now()
	if err := m.d.load(ctx, m.r.System.Product, m.clients); err != nil {
		return err
	}
	m.p.LoadSeconds = time.Since(began).Seconds()
	after := usage(m.r)
	m.p.LoadCPU = (after.server - before.server + after.database - before.database) / float64(m.d.Keys*m.d.Versions) * 1e6
	full, err := m.r.Bytes()
	if err != nil {
		return err
	}
	m.p.DiskBytes = max(0, full-empty)
	m.tell("loaded in %.1f s, CPU %.0f µs a version, %d MiB", m.p.LoadSeconds, m.p.LoadCPU, m.p.DiskBytes>>20)
	for _, series := range []struct {
		name    string
		into    **Series
		clients int
		stepOf  func() step
	}{
		{"get", &m.p.Get, 16, shared(m.get)}, {"page", &m.p.Page, 4, m.follow}, {"jump", &m.p.Jump, 4, shared(m.jump)},
		{"count", &m.p.Count, 1, shared(m.count)}, {"create", &m.p.Create, 16, shared(m.create)},
	} {
		got, err := drive(ctx, m.r, m.clients, series.clients, m.cfg.Duration, series.stepOf)
		if err != nil {
			return fmt.Errorf("%s: %w", series.name, err)
		}
		*series.into = &got
		m.tell("%-6s %8.0f/s  p50 %8.2f ms  p99 %8.2f ms  RSS %d + %d MiB", series.name, got.PerSecond, got.P50, got.P99, got.ServerRSS>>20, got.DatabaseRSS>>20)
	}
	if err := m.compaction(ctx); err != nil {
		return fmt.Errorf("compaction: %w", err)
	}
	if err := m.starts(ctx); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if err := m.failovers(ctx); err != nil {
		return fmt.Errorf("failover: %w", err)
	}
	return nil
}

// shared is for steps that remember nothing.
func shared(do step) func() step { return func() step { return do } }

func (m *measurement) get(ctx context.Context, c *clientv3.Client, r *rand.Rand) error {
	key := keyOf(r.IntN(m.d.Keys))
	resp, err := c.Get(ctx, key, clientv3.WithLimit(1))
	if err != nil {
		return err
	}
	if len(resp.Kvs) != 1 || string(resp.Kvs[0].Key) != key {
		return fmt.Errorf("get %s: %d keys", key, len(resp.Kvs))
	}
	return m.d.check(resp.Kvs[0])
}

// follow lists everything page by page, as kube-apiserver does. Later pages are read at
// the revision of the first, starting after the last key. Then it starts again.
func (m *measurement) follow() step {
	var from int
	var rev int64
	start := prefix
	return func(ctx context.Context, c *clientv3.Client, _ *rand.Rand) error {
		resp, err := c.Get(ctx, start, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(pageSize), clientv3.WithRev(rev))
		if err != nil {
			return err
		}
		if err := m.d.checkPage(resp, from, pageSize); err != nil {
			return err
		}
		if rev == 0 {
			rev = resp.Header.Revision
		}
		from += len(resp.Kvs)
		start = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
		if !resp.More {
			from, rev, start = 0, 0, prefix
		}
		return nil
	}
}

func (m *measurement) jump(ctx context.Context, c *clientv3.Client, r *rand.Rand) error {
	from := r.IntN(m.d.Keys)
	resp, err := c.Get(ctx, keyOf(from), clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(pageSize))
	if err != nil {
		return err
	}
	return m.d.checkPage(resp, from, pageSize)
}

func (m *measurement) count(ctx context.Context, c *clientv3.Client, _ *rand.Rand) error {
	resp, err := c.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err == nil && resp.Count != int64(m.d.Keys) {
		err = fmt.Errorf("count: %d, want %d", resp.Count, m.d.Keys)
	}
	return err
}

func (m *measurement) create(ctx context.Context, c *clientv3.Client, _ *rand.Rand) error {
	n := int(m.fresh.Add(1))
	key := fmt.Sprintf("%sname-%09d", created, n)
	resp, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, string(valueOf(n, 0, m.d.ValueSize)))).Commit()
	if err == nil && !resp.Succeeded {
		err = fmt.Errorf("create %s: it exists", key)
	}
	return err
}

// connect makes the clients' connections, in place of those there were.
func (m *measurement) connect(endpoint string) error {
	if err := m.disconnect(); err != nil {
		return err
	}
	for range connections {
		c, err := system.Connect(endpoint)
		if err != nil {
			return err
		}
		m.clients = append(m.clients, c)
	}
	return nil
}

func (m *measurement) disconnect() error {
	var errs []error
	for _, c := range m.clients {
		errs = append(errs, c.Close())
	}
	m.clients = nil
	return errors.Join(errs...)
}

func (m *measurement) tell(format string, args ...any) {
	// Progress is informational; a failed write is ignored.
	_, _ = fmt.Fprintf(m.cfg.Progress, "%s   "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}
