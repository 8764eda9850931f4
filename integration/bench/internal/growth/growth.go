package growth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/machine"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
	"github.com/sqlbrain/sqlbrain/integration/internal/workload"
)

// Dataset is a size of the data.
type Dataset struct {
	Keys      int `json:"keys"`
	Versions  int `json:"versions"`   // of each key, all kept
	ValueSize int `json:"value_size"` // bytes
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

// Is reports whether a point is of this size of a system.
func (p *Point) Is(name string, d Dataset) bool { return p.System == name && p.Dataset == d }

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

// Series are requests of one kind, sent by so many clients for a while.
type Series struct {
	Clients     int     `json:"clients"`
	Done        int64   `json:"done"`
	PerSecond   float64 `json:"per_second"`
	P50         float64 `json:"p50_ms"`
	P99         float64 `json:"p99_ms"`
	ServerCPU   float64 `json:"server_cpu_us"` // microseconds for each request
	DatabaseCPU float64 `json:"database_cpu_us"`
	ServerRSS   int64   `json:"server_rss"` // bytes, at the end
	DatabaseRSS int64   `json:"database_rss"`
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
	loaders     = 16  // transactions at a time
	batch       = 128 // puts of a transaction: etcd's --max-txn-ops
	kineLoaders = 64  // kine takes one put at a time
	// garbage is how many versions the compaction removes, of keys that have no
	// other history.
	garbage = 10_000
)

// Measure loads the data into a fresh system and measures everything. The point records
// failures. An error means that ctx ended, or that the system was not removed.
func (cfg *Config) Measure(ctx context.Context, s system.System, d Dataset) (_ *Point, err error) {
	p := &Point{System: s.Name(), Dataset: d, Started: time.Now().UTC(), Load: machine.Load()}
	r, err := cfg.Environment.Start(ctx, s)
	if r != nil {
		defer func() { err = errors.Join(err, r.Close()) }()
	}
	if err == nil {
		m := measurement{cfg: cfg, r: r, p: p}
		err = m.all(ctx)
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
	cfg  *Config
	r    *system.Running
	p    *Point
	data *workload.Report // of the newest run, whose objects the next one continues with
}

func (m *measurement) all(ctx context.Context) error {
	empty, err := m.r.Bytes()
	if err != nil {
		return err
	}
	loaded, err := m.load(ctx, m.p.Keys, m.p.Versions)
	if err != nil {
		return err
	}
	m.p.LoadSeconds = loaded.Seconds
	var cpu float64
	for _, s := range loaded.Server {
		cpu += s.CPUSeconds
	}
	m.p.LoadCPU = cpu / float64(m.p.Keys*m.p.Versions) * 1e6
	full, err := m.r.Bytes()
	if err != nil {
		return err
	}
	m.p.DiskBytes = max(0, full-empty)
	m.tell("loaded in %.1f s, CPU %.0f µs a version, %d MiB", m.p.LoadSeconds, m.p.LoadCPU, m.p.DiskBytes>>20)
	for _, series := range []struct {
		workload string
		clients  int
		into     **Series
	}{
		{"get", 16, &m.p.Get}, {"list", 4, &m.p.Page}, {"page", 4, &m.p.Jump}, {"count", 1, &m.p.Count},
		{"create", 16, &m.p.Create},
	} {
		p, err := m.run(ctx, series.workload, series.clients, func(c *workload.Config) { c.Duration = m.cfg.Duration })
		if err != nil {
			return err
		}
		o, u := p.Ops[0], m.r.UsageOf(p)
		*series.into = &Series{
			Clients: series.clients, Done: o.Succeeded, PerSecond: o.PerSecond, P50: o.Latency.P50, P99: o.Latency.P99,
			ServerCPU: u.ServerCPU, DatabaseCPU: u.DatabaseCPU, ServerRSS: u.ServerRSS, DatabaseRSS: u.DatabaseRSS,
		}
		m.tell("%-6s %8.0f/s  p50 %8.2f ms  p99 %8.2f ms  RSS %d + %d MiB", series.workload, o.PerSecond, o.Latency.P50,
			o.Latency.P99, u.ServerRSS>>20, u.DatabaseRSS>>20)
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

// run runs a workload on the data, and returns its last phase. The first request that fails, or is answered
// wrongly, is an error.
func (m *measurement) run(ctx context.Context, name string, clients int,
	configure func(*workload.Config)) (*workload.PhaseReport, error) {
	c := workload.DefaultConfig()
	m.r.Configure(&c)
	c.Workload, c.Clients, c.Conns, c.ValueSize, c.Prefix = name, clients, connections, m.p.ValueSize, "/registry/growth"
	c.Keep, c.NoFinalList, c.After = true, true, m.data
	configure(&c)
	rep, err := workload.Run(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if _, failed := rep.Requests(); failed > 0 {
		return nil, fmt.Errorf("%s: %d requests failed", name, failed)
	}
	m.data = rep
	return &rep.Phases[len(rep.Phases)-1], nil
}

// load writes versions of the first keys, and returns all of its phases as one.
func (m *measurement) load(ctx context.Context, keys, versions int) (*workload.PhaseReport, error) {
	clients, size := loaders, batch
	if m.r.System.Product == system.Kine {
		clients, size = kineLoaders, 1
	}
	_, err := m.run(ctx, "load", clients, func(c *workload.Config) { c.Keys, c.Versions, c.Batch = keys, versions, size })
	if err != nil {
		return nil, err
	}
	all := m.data.Phases[0]
	for _, p := range m.data.Phases[1:] {
		all.Seconds += p.Seconds
		for i := range p.Server {
			all.Server[i].CPUSeconds += p.Server[i].CPUSeconds
		}
	}
	return &all, nil
}

func (m *measurement) tell(format string, args ...any) {
	// Progress is informational; a failed write is ignored.
	_, _ = fmt.Fprintf(m.cfg.Progress, "%s   "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}
