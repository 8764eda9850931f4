package plan

import (
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
	"github.com/sqlbrain/sqlbrain/integration/internal/workload"
)

// Options are the sizes of a run.
type Options struct {
	Clients   []int `json:"clients"`    // of most workloads
	Lists     []int `json:"lists"`      // clients of lists, whose answers are large
	Mixed     int   `json:"mixed"`      // clients of mixed
	Keys      int   `json:"keys"`       // that exist before
	ValueSize int   `json:"value_size"` // bytes
	// bytes, of the workloads that are also run with small values; 0: none
	SmallSize int           `json:"small_size"`
	Duration  time.Duration `json:"duration"`        // of a figure, in nanoseconds
	Watchers  []int         `json:"watchers"`        // the first of everything, others of one object each
	WatchRate int           `json:"watch_rate"`      // writes per second while watchers watch
	Churn     []int         `json:"churn,omitempty"` // clients of churn, which then is the only workload
	Seed      uint64        `json:"seed"`
}

// Full and Quick are for figures, and for a look. Tiny is for the tests.
var (
	Full = Options{
		Clients: []int{1, 64, 512}, Lists: []int{1, 8, 64}, Mixed: 128, Keys: 10_000, ValueSize: 1024, SmallSize: 512,
		Duration: 5 * time.Second, Watchers: []int{100, 10_000}, WatchRate: 100, Seed: 1,
	}
	Quick = Options{
		Clients: []int{1, 64}, Lists: []int{8}, Mixed: 128, Keys: 2000, ValueSize: 1024,
		Duration: 2 * time.Second, Watchers: []int{100, 1000}, WatchRate: 100, Seed: 1,
	}
	// Scoreboard is for churn.
	Scoreboard = Options{Churn: []int{50, 200, 1000}, Watchers: []int{10}, Keys: 5000, ValueSize: 1024,
		Duration: 10 * time.Second, Seed: 1}
	// In a Tiny one each key has a watcher, because a slow machine may make one update only.
	Tiny = Options{
		Clients: []int{1, 8}, Lists: []int{2}, Mixed: 8, Keys: 40, ValueSize: 64, SmallSize: 32,
		Duration: 50 * time.Millisecond, Watchers: []int{3, 40}, WatchRate: 100, Seed: 1,
	}
)

// writers are the clients that write while watchers watch.
const writers = 64

// mix is the ratio of operations of mixed: reads of single objects, optimistic
// updates, creations, deletions. The page says so too.
var mix = map[string]int{"get": 60, "update": 30, "create": 7, "delete": 3}

// Cell is one figure: a workload with so many clients.
type Cell struct {
	ID        string          `json:"id"` // unique in a plan
	Workload  string          `json:"workload"`
	Clients   int             `json:"clients"`
	ValueSize int             `json:"value_size"`
	Phase     string          `json:"phase"` // of the report, which is measured
	Op        string          `json:"op"`    // of the phase; "": all
	Needs     string          `json:"-"`     // ID of the cell whose data this one continues with; "": none, or the base
	Config    workload.Config `json:"-"`
}

// Step is a cell, or something that is prepared and not measured.
type Step struct {
	Cell
	Prepares bool
}

// config is that of every workload that is measured. Clients share a connection by eight.
func (o Options) config(name string, clients, size int, prefix string) workload.Config {
	c := workload.DefaultConfig()
	c.Workload, c.Clients, c.Conns, c.ValueSize, c.Prefix = name, clients, max(1, clients/8), size, prefix
	c.Seed, c.Keys, c.Duration, c.Mix = o.Seed, o.Keys, o.Duration, mix
	return c
}

// Steps are the steps of one round on one system, in order. Reads come first and
// find the loaded data. Updates come last, because they leave history.
func (o Options) Steps() []Step {
	if len(o.Churn) > 0 {
		return o.churn()
	}
	var steps []Step
	small := 0
	for _, size := range []int{o.ValueSize, o.SmallSize} {
		if size == 0 {
			continue
		}
		clients, lists := o.Clients, o.Lists
		if size != o.ValueSize {
			clients, lists = []int{o.middle(o.Clients)}, []int{o.middle(o.Lists)}
			small = size
		}
		base := fmt.Sprintf("/registry/base-%d", size)
		load := o.config("create", min(64, o.Keys), size, base)
		load.Total, load.Duration = int64(o.Keys), 0
		baseID := fmt.Sprintf("load-%d", size)
		steps = append(steps, Step{Cell: Cell{ID: baseID, Workload: "create", Config: load}, Prepares: true})
		// The number in a cell's name is that of clients, or of watchers.
		addAs := func(c workload.Config, number int, phase, op, needs string) string {
			id := fmt.Sprintf("%s-%d", c.Workload, number)
			if size == small {
				id += fmt.Sprintf("-%dB", size)
			}
			steps = append(steps, Step{Cell: Cell{
				ID: id, Workload: c.Workload, Clients: c.Clients, ValueSize: size, Phase: phase, Op: op, Needs: needs, Config: c,
			}})
			return id
		}
		add := func(name string, clients int, phase, op, prefix, needs string) string {
			return addAs(o.config(name, clients, size, prefix), clients, phase, op, needs)
		}
		for _, n := range clients {
			add("get", n, "get", "get", base, baseID)
		}
		for _, n := range lists {
			add("list", n, "list", "list page", base, baseID)
		}
		if size == o.ValueSize {
			for _, n := range clients {
				add("count", n, "count", "count", base, baseID)
			}
			for _, n := range lists[:max(1, len(lists)-1)] {
				add("list-all", n, "list all", "list all", base, baseID)
			}
			for _, n := range clients {
				add("grant", n, "grant", "grant", fmt.Sprintf("/registry/grant-%d", n), "")
				add("keepalive", n, "keepalive", "keepalive", fmt.Sprintf("/registry/keepalive-%d", n), "")
			}
			for i, n := range o.Watchers {
				c := o.config("watch-latency", writers, size, base)
				c.Watchers, c.Rate, c.WatchEach = n, float64(o.WatchRate), i > 0
				addAs(c, n, "watch", "event", baseID)
			}
		}
		for _, n := range clients {
			add("update", n, "update", "update", base, baseID)
		}
		for _, n := range clients {
			prefix := fmt.Sprintf("/registry/create-%d-%d", size, n)
			created := add("create", n, "create", "create", prefix, "")
			if size == o.ValueSize {
				// Deletes the created keys, until none is left.
				add("delete", n, "delete", "delete", prefix, created)
			}
		}
		if size == o.ValueSize {
			add("mixed", o.Mixed, "mixed", "", "/registry/mixed", "")
			for _, n := range clients {
				add("put", n, "put", "put", base, baseID)
			}
		}
	}
	return steps
}

// churn are the steps of churn. Each begins with new objects.
func (o Options) churn() []Step {
	var steps []Step
	for _, n := range o.Churn {
		id := fmt.Sprintf("churn-%d", n)
		c := o.config("churn", n, o.ValueSize, "/registry/"+id)
		c.Watchers = o.Watchers[0]
		steps = append(steps, Step{Cell: Cell{ID: id, Workload: "churn", Clients: n, ValueSize: o.ValueSize, Phase: "churn",
			Config: c}})
	}
	return steps
}

// middle is the number of clients that workloads with small values have.
func (o Options) middle(clients []int) int { return clients[len(clients)/2] }

// Cells are what Steps measures.
func (o Options) Cells() []Cell {
	var cells []Cell
	for _, s := range o.Steps() {
		if !s.Prepares {
			cells = append(cells, s.Cell)
		}
	}
	return cells
}

// Unsupported returns why a product has no such workload; "" if it has.
func Unsupported(p system.Product, name string) string {
	if p != system.Kine {
		return ""
	}
	switch name {
	case "grant":
		return "kine keeps no leases: a grant returns its time to live as the id, and nothing is written"
	case "keepalive":
		return "kine does not support it: \"lease keep alive is not supported\""
	case "put":
		return "kine is made for kube-apiserver's transactions: it acknowledges puts of existing keys and does not write them"
	}
	return ""
}
