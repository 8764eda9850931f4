package simulation

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Plan is what a seed decides: the workload, and the faults with their times. A plan can be
// cut down: without one of its faults, the others stay what they are.
type Plan struct {
	Seed uint64
	// Duration is for how long clients send requests. Faults are over before its end.
	Duration time.Duration
	Faults   []Fault
	Workload Workload
	Settings Settings
}

// Settings are those of the nodes. They are small in most plans, so that what they bound happens often.
type Settings struct {
	RecordCache   int // in bytes
	IndexCache    int
	BatchRequests int
	RingEvents    int
	QueueEvents   int
	SpanKeys      int // of the counts of keys; 0: the default, like the next one
	CountChanges  int
	// Latency is the longest additional latency to the database, each way.
	Latency time.Duration
}

// Workload says what clients do.
type Workload struct {
	Clients  int           // that read and write, on each node
	Watchers int           // that watch, in all
	Leases   int           // clients with leases that expire, in all
	Keys     int           // few keys make clients meet
	Think    time.Duration // the longest pause of a client between two requests
	Compact  time.Duration // between compactions; 0: none

	Compactors int           // that compact at the same time
	Burst      int           // most requests that a client sends at once
	Padding    int           // most bytes of a value
	Slow       time.Duration // the longest pause of some watchers between two answers
	TTL        int           // the longest of a lease, in seconds

	Wide   int  // keys that some transactions put; 0: there are none
	Past   bool // most reads are of old revisions, on any node
	Counts bool // most reads count
	Same   bool // clients do nothing but put one key
	Renew  bool // leases are renewed as long as they exist
	Half   bool // leases are as long as they may be, and renewed when more than half of their time is over
	Stale  bool // another client of each node reads what the node shows, and nothing else
	Newest bool // another client of each node reads the newest state there, and nothing else
	Single bool // clients read, put and delete single keys only, and most of them the same one for a while
	Again  bool // leases are revoked when their time is up, and granted again under the same id
}

// Fault is something that goes wrong between At and At+For, in simulated time from the
// start of the clients.
type Fault struct {
	At, For time.Duration
	Kind    Kind
	// Host is a node, or Leader: the node that leads then.
	Host string
	// Peer is the other side of a partition: a node, or the database.
	Peer string
	// Seed decides on what the fault draws.
	Seed uint64
}

// Leader stands for the node that leads when a fault begins.
const Leader = "leader"

// Kind is a kind of fault.
type Kind string

// The kinds of faults.
const (
	// Crash kills a process. Its host refuses connections until it is started again.
	Crash Kind = "crash"
	// PowerOff turns a machine off. Nothing answers until it is started again.
	PowerOff Kind = "power-off"
	// Stop stops a process in order.
	Stop Kind = "stop"
	// Pause stalls all that a host sends and receives.
	Pause Kind = "pause"
	// Suspend is Pause while the host's monotonic clock stands still.
	Suspend Kind = "suspend"
	// Partition loses all packets between two hosts, PartitionTo those from Host to Peer.
	Partition   Kind = "partition"
	PartitionTo Kind = "partition-to"
	// Slow adds latency to what Host sends to Peer.
	Slow Kind = "slow"
	// Reset breaks connections of a host, Hang lets them bring nothing more.
	Reset Kind = "reset"
	Hang  Kind = "hang"
	// Flaky breaks some connections of a host again and again.
	Flaky Kind = "flaky"
	// Statements makes the host's statements fail: before or after the database executes them.
	Statements Kind = "statements"
	// SlowStatements makes them slow.
	SlowStatements Kind = "slow-statements"
	// Outage makes the database refuse all statements.
	Outage Kind = "outage"
	// Stall lets the database answer nothing. What it was sent, it executes afterwards.
	Stall Kind = "stall"
	// Loss lets the database lose the commits of the last For.
	Loss Kind = "loss"
	// Replace lets the database lose the commits of the last For while Host hangs. Meanwhile the other nodes, which start
	// again, give their revisions to others. It is the only fault of a plan.
	Replace Kind = "replace"
	// Repeat is Replace after which the next leader has the term of the one whose start was lost, when Host's statements
	// fail.
	Repeat Kind = "repeat"
	// Even is Replace after which the newest revision is that which Host knows, when Host's statements fail.
	Even Kind = "even"
	// Overtake is Replace after which Host finds the loss just before as much is written as was lost.
	Overtake Kind = "overtake"
	// Unread is Replace after which Host reaches no other node, and the database does not answer its reads of the fence
	// row.
	Unread Kind = "unread"
	// Move moves the leadership to Host.
	Move Kind = "move"
	// Refuse refuses the connections of other nodes to a host, as a firewall can.
	Refuse Kind = "refuse"
	// ReadOnly makes the database refuse what a host writes.
	ReadOnly Kind = "read-only"
	// Failing makes many of a host's statements fail before the database has them.
	Failing Kind = "failing"
	// LateAnswers makes the answers to some commits of a host late.
	LateAnswers Kind = "late-answers"
	// Late makes the answers to some statements of a host late.
	Late Kind = "late"
	// LateLists makes the answers to a host's reads of keys late.
	LateLists Kind = "late-lists"
	// LateRemovals lets the statements by which a host removes compacted rows reach the database late.
	LateRemovals Kind = "late-removals"
)

func (f Fault) String() string {
	s := fmt.Sprintf("%s %s@%s", f.At, f.Kind, f.Host)
	if f.Peer != "" {
		s += ">" + f.Peer
	}
	if f.For > 0 {
		s += "/" + f.For.String()
	}
	return fmt.Sprintf("%s #%x", s, f.Seed)
}

// loses reports whether the database loses data.
func (p Plan) loses() bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == Loss || f.Kind.replaces() })
}

// replaces reports whether revisions that the database has lost are given to other requests.
func (p Plan) replaces() bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind.replaces() })
}

// reuses reports whether clients may see that: also if the only node that knows of the lost revisions hangs for a
// while.
func (p Plan) reuses() bool {
	hangs := slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == Pause })
	return p.replaces() || p.loses() && hangs
}

func (k Kind) replaces() bool {
	switch k {
	case Replace, Repeat, Even, Overtake, Unread:
		return true
	}
	return false
}

func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %s, %+v, %+v", p.Seed, p.Duration, p.Workload, p.Settings)
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "\n  %v", f)
	}
	return b.String()
}

// nodes are the hosts of the cluster's nodes.
var nodes = []string{"n1", "n2", "n3"}

// kindsOfPlans is how many kinds of plans there are. They take turns.
const kindsOfPlans = 6

// NewPlan returns the plan of a seed.
func NewPlan(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, hash("plan")))
	between := func(lo, hi time.Duration) time.Duration {
		return (lo + time.Duration(r.Int64N(int64(hi-lo)))).Round(time.Millisecond)
	}
	p := Plan{Seed: seed, Duration: between(6*time.Second, 12*time.Second), Workload: Workload{
		Clients: 1 + r.IntN(2), Watchers: 2 + r.IntN(3), Leases: 1 + r.IntN(2), Keys: 3 + r.IntN(8),
		Think: between(40*time.Millisecond, 300*time.Millisecond), Burst: r.IntN(2) * r.IntN(8),
	}}
	if r.IntN(3) > 0 {
		p.Workload.Compact = between(300*time.Millisecond, 3*time.Second)
	}
	p.Settings = Settings{
		RecordCache: []int{0, 1 << 12, 1 << 20}[r.IntN(3)], IndexCache: []int{1, 4, 1000}[r.IntN(3)],
		BatchRequests: []int{1, 3, 256}[r.IntN(3)],
		RingEvents:    []int{4, 32, 1 << 12}[r.IntN(3)], QueueEvents: []int{2, 16, 1 << 10}[r.IntN(3)],
	}
	// Each kind of plan does one thing more than the others.
	load, possible := &p.Workload, kinds
	switch seed % kindsOfPlans {
	case 0:
	case 1: // much in one batch
		load.Burst, load.Think, load.Keys, load.Leases = 4+r.IntN(8), between(60*time.Millisecond, 150*time.Millisecond),
			2+r.IntN(4), 1
		p.Settings.BatchRequests = []int{4, 256}[r.IntN(2)]
	case 2: // compaction
		load.Compact, load.Compactors, load.Watchers, load.Leases = between(20*time.Millisecond, 200*time.Millisecond),
			1+r.IntN(2), 2, 0
		p.Duration = between(4*time.Second, 8*time.Second)
	case 3: // watches
		load.Watchers, load.Padding, load.Leases = 6, r.IntN(2)*(1<<13), 0
		load.Slow = between(20*time.Millisecond, time.Second)
	case 4: // leases, and orderly changes of the leader
		load.Leases, load.TTL, load.Clients, load.Watchers = 6, 4+r.IntN(12), 1, 1
		load.Think = between(200*time.Millisecond, 600*time.Millisecond)
		p.Duration = between(9*time.Second, 15*time.Second)
		possible = []Kind{Move, Move, Stop}
		if r.IntN(2) == 0 {
			possible = []Kind{Move, Crash, Crash, PowerOff, SlowStatements}
		}
	case 5: // old leaders
		load.Clients, load.Think, load.Watchers, load.Leases = 2+r.IntN(2),
			between(5*time.Millisecond, 40*time.Millisecond), 1, 0
		p.Duration = between(3*time.Second, 6*time.Second)
		possible = []Kind{Move, Partition, PartitionTo, SlowStatements, Slow, Statements, Crash}
	}
	if seed/kindsOfPlans%10 == 7 { // calls between nodes
		load.Clients, load.Think, load.Watchers, load.Leases = 2+r.IntN(2), between(5*time.Millisecond, 60*time.Millisecond),
			1, r.IntN(2)
		p.Duration = between(3*time.Second, 6*time.Second)
		possible = []Kind{Flaky, Flaky, Flaky, Slow, Slow, Slow, PartitionTo, Reset, Hang, Move}
	}
	if p.special(rand.New(rand.NewPCG(seed, hash("special")))) {
		return p
	}
	if r.IntN(20) == 0 {
		age := between(50*time.Millisecond, time.Second)
		p.Faults = []Fault{{At: p.Duration - 2*time.Second - age, For: age, Kind: Loss, Host: databaseHost, Seed: r.Uint64()}}
		return p
	}
	last := p.Duration - 500*time.Millisecond
	faults := 1 + r.IntN(7)
	if r.IntN(4) == 0 {
		faults += 10 // one after the other leaves no time to recover
	}
	for range faults {
		f := Fault{At: between(0, last-time.Second), Seed: r.Uint64()}
		f.Kind = possible[r.IntN(len(possible))]
		f.Host = nodes[r.IntN(len(nodes))]
		if f.Kind != Move && r.IntN(2) == 0 {
			f.Host = Leader
		}
		longest := 4 * time.Second
		switch f.Kind {
		case Partition, PartitionTo, Slow:
			f.Peer = append(slices.Clone(nodes), databaseHost, databaseHost)[r.IntN(len(nodes)+2)]
		case Outage:
			f.Host, longest = databaseHost, 2*time.Second
		case Pause, Suspend:
			if r.IntN(2) == 0 {
				longest = 500 * time.Millisecond
			}
		}
		f.For = min(between(20*time.Millisecond, longest), last-f.At)
		switch f.Kind {
		case Reset, Hang, Move:
			f.For = 0
		}
		p.Faults = append(p.Faults, f)
	}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return p
}

// kinds are those that plans draw from; frequent ones occur more than once.
var kinds = []Kind{
	Crash, Crash, PowerOff, Stop, Pause, Pause, Suspend, Partition, PartitionTo, PartitionTo, Slow, Reset, Hang,
	Statements, Statements, Statements, SlowStatements, Outage, Move, Move,
}
