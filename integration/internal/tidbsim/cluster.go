package tidbsim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"
)

// Config configures a Cluster; the zero value is a TiDB as it is installed, without faults.
type Config struct {
	// Seed decides every random choice.
	Seed uint64
	// Latency is about how long a statement takes, half of it before it is executed; each
	// one takes between half and one and a half of it. 0: no time.
	Latency time.Duration
	// Faults are the probabilities of faults, each time one could happen.
	Faults map[Fault]float64
	// LateCommit bounds how much later a commit of unknown outcome may happen; 0: 2 s.
	LateCommit time.Duration
	// GCLifeTime is tidb_gc_life_time; 0: 10 minutes.
	GCLifeTime time.Duration
	// Globals override global system variables, such as tidb_retry_limit.
	Globals map[string]string
}

// Cluster is a simulated TiDB with one database. Safe for concurrent use.
type Cluster struct {
	lateCommit, gcLifeTime time.Duration
	latency                time.Duration
	parsed                 parsed

	mu     sync.Mutex
	rnd    *rand.Rand
	faults map[Fault]float64
	queued map[Fault]int // see Inject
	struck map[Fault]int
	down   bool

	lastTS    uint64
	safePoint uint64
	schema    int64
	nextTable int64
	tables    map[string]*table
	globals   map[string]string
	advisory  map[string]*session
	locks     map[rowKey]*lock
	// active are the transactions that have begun and not ended.
	active map[*txn]struct{}
	// ghosts are commits that happen, or are given up, without a client.
	ghosts []*ghost
	// changed is closed, and replaced, when a lock may have become free.
	changed chan struct{}
	conns   map[*conn]struct{}
	lastID  uint64 // of a connection
}

const (
	databaseName  = "sqlbrain"
	serverVersion = "8.0.11-TiDB-v8.5.3"

	defaultGCLifeTime = 10 * time.Minute
	defaultLateCommit = 2 * time.Second
	// gcMaxWait is tidb_gc_max_wait_time: a transaction blocks GC for that long.
	gcMaxWait = 24 * time.Hour
	// lockTTL is how long the locks of a transaction outlive its TiDB server
	// (ManagedLockTTL in client-go).
	lockTTL = 20 * time.Second
	// prewriteBackoff bounds how long a commit waits for the locks of others
	// (PrewriteMaxBackoff in client-go).
	prewriteBackoff = 40 * time.Second
	// pollInterval is how often a lock is looked at that may expire.
	pollInterval = 100 * time.Millisecond
	// lockRetries is pessimistic-txn.max-retry-count.
	lockRetries = 256

	maxEntry       = 6 << 20   // txn-entry-size-limit
	maxTransaction = 100 << 20 // txn-total-size-limit
)

// New returns an empty cluster. It starts no goroutine and needs no end.
func New(cfg Config) *Cluster {
	c := &Cluster{
		lateCommit: cfg.LateCommit, gcLifeTime: cfg.GCLifeTime, latency: cfg.Latency,
		rnd: rand.New(rand.NewPCG(cfg.Seed, 0x71db)), faults: map[Fault]float64{}, queued: map[Fault]int{},
		struck:    map[Fault]int{},
		nextTable: 104, tables: map[string]*table{}, globals: map[string]string{}, advisory: map[string]*session{},
		locks: map[rowKey]*lock{}, active: map[*txn]struct{}{}, changed: make(chan struct{}), conns: map[*conn]struct{}{},
	}
	if c.gcLifeTime <= 0 {
		c.gcLifeTime = defaultGCLifeTime
	}
	if c.lateCommit <= 0 {
		c.lateCommit = defaultLateCommit
	}
	for name, value := range systemVariables {
		c.globals[name] = value
	}
	for name, value := range cfg.Globals {
		c.globals[name] = value
	}
	for f, p := range cfg.Faults {
		c.faults[f] = p
	}
	return c
}

// tso returns a timestamp above all others: milliseconds, and a counter in 18 bits.
func (c *Cluster) tso() uint64 {
	c.lastTS = max(c.lastTS+1, physical(time.Now()))
	return c.lastTS
}

func physical(t time.Time) uint64 { return uint64(t.UnixMilli()) << 18 }

// collect moves the safe point of GC. Transactions in progress hold it up, each for at most
// gcMaxWait.
func (c *Cluster) collect() {
	now := time.Now()
	safe := physical(now.Add(-c.gcLifeTime))
	for t := range c.active {
		if now.Sub(t.began) < gcMaxWait {
			safe = min(safe, t.start-1)
		}
	}
	c.safePoint = max(c.safePoint, safe)
}

// ChangeSchema makes every transaction in progress fail at its commit, as a DDL on the
// table does where metadata locks are off.
func (c *Cluster) ChangeSchema() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.schema++
	for _, t := range c.tables {
		t.changed = c.schema
	}
}

// Split makes regions of table object begin at keys, which must be in order.
func (c *Cluster) Split(keys ...[]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tables["object"]
	if t == nil {
		return fmt.Errorf("tidbsim: no table object")
	}
	t.regions = nil
	for _, key := range keys {
		t.regions = append(t.regions, string(key))
	}
	return nil
}

// LoseLocks drops all row locks, as the failure of a TiKV node may drop pipelined and
// in-memory locks.
func (c *Cluster) LoseLocks() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, l := range c.locks {
		if !l.prewritten {
			delete(c.locks, key)
		}
	}
	c.wake()
}

// Stop ends the TiDB server: connections break, and none can be made until Start. If it
// crashed, it did not roll its transactions back, and their locks stay for lockTTL.
func (c *Cluster) Stop(crashed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = true
	for conn := range c.conns {
		if crashed {
			conn.session.abandon()
		}
		conn.breakOff()
	}
}

// Start makes the TiDB server accept connections again.
func (c *Cluster) Start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = false
}

// BreakConns breaks every connection. Their transactions are rolled back.
func (c *Cluster) BreakConns() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		conn.breakOff()
	}
}

// Locks returns the number of locked rows.
func (c *Cluster) Locks() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.locks {
		c.holder(key, nil) // removes a lock that has expired
	}
	return len(c.locks)
}

// Active returns the number of transactions in progress.
func (c *Cluster) Active() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.active)
}

// wake makes everyone who waits look again.
func (c *Cluster) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// wait releases the mutex until something has changed, d has passed, the next ghost is due,
// or ctx has ended, whose error it returns.
func (c *Cluster) wait(ctx context.Context, d time.Duration) error {
	now := time.Now()
	for _, g := range c.ghosts {
		d = min(d, max(g.due.Sub(now), time.Millisecond))
	}
	changed := c.changed
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.settle()
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// globalInt returns a global variable as a number; 0 if it is none.
func (c *Cluster) globalInt(name string) int {
	n, err := strconv.Atoi(c.globals[name])
	if err != nil {
		return 0
	}
	return n
}
