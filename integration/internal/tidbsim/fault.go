package tidbsim

import (
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Fault is something that can go wrong.
type Fault string

// The faults, by the moment at which they strike.
const (
	// A connection is refused.
	ConnRefused Fault = "connection refused"

	// The connection is found broken before anything is sent: driver.ErrBadConn.
	BadConn Fault = "bad connection"
	// The connection breaks before the server has the statement, or after it executed it:
	// mysql.ErrInvalidConn.
	LostBefore Fault = "lost before the statement"
	LostAfter  Fault = "lost after the statement"
	// The request arrives after its connection broke: a statement that commits by itself,
	// or a COMMIT, is executed later.
	LostLate Fault = "lost, the statement comes late"
	// The answer to a query breaks off between two rows.
	LostRows Fault = "lost between rows"
	// A region has another leader: the statement takes longer (backoff).
	RegionMoved Fault = "region moved"

	// A statement that reads or locks fails.
	RegionUnavailable  Fault = "region unavailable"                 // 9005
	PDTimeout          Fault = "PD timeout"                         // 9001
	TiKVTimeout        Fault = "TiKV timeout"                       // 9002
	TiKVBusy           Fault = "TiKV busy"                          // 9003
	GCTooEarly         Fault = "GC too early"                       // 9006, of a read at a snapshot
	ReadResolveTimeout Fault = "resolve lock timeout of a read"     // 9004
	ReadSchemaChanged  Fault = "schema changed, no code, of a read" // 1105
	LockWait           Fault = "lock wait timeout"                  // 1205, of a statement in a transaction
	Deadlock           Fault = "deadlock"                           // 1213, which rolls the transaction back
	LocksLost          Fault = "locks lost"                         // of the transaction, without an error

	// A commit fails and is rolled back.
	WriteConflict         Fault = "write conflict"                 // 9007
	TxnRetryable          Fault = "retryable"                      // 8022
	SchemaChanged         Fault = "schema changed"                 // 8028
	SchemaChangedNoCode   Fault = "schema changed, no code"        // 1105
	CommitRegion          Fault = "region unavailable at commit"   // 9005
	CommitTiKVTimeout     Fault = "TiKV timeout at commit"         // 9002
	CommitTiKVBusy        Fault = "TiKV busy at commit"            // 9003
	CommitResolveTimeout  Fault = "resolve lock timeout at commit" // 9004
	CommitLockNotFound    Fault = "lock not found at commit"       // 1105
	UndeterminedLost      Fault = "undetermined, not committed"    // the connection closes
	UndeterminedCommitted Fault = "undetermined, committed"
	// The commit happens later, or never; until then the rows are not locked, or locked as
	// by a prewrite, for readers too.
	UndeterminedLate       Fault = "undetermined, late"
	UndeterminedPrewritten Fault = "undetermined, prewritten"
)

// The faults of each moment.
var (
	sendFaults   = []Fault{BadConn, LostBefore, LostLate}
	readFaults   = []Fault{RegionUnavailable, PDTimeout, TiKVTimeout, TiKVBusy, ReadResolveTimeout, ReadSchemaChanged}
	snapFaults   = []Fault{GCTooEarly}
	lockFaults   = []Fault{RegionUnavailable, PDTimeout, TiKVTimeout, TiKVBusy, LockWait, Deadlock}
	commitFaults = []Fault{
		WriteConflict, TxnRetryable, SchemaChanged, SchemaChangedNoCode, CommitRegion, CommitTiKVTimeout, CommitTiKVBusy,
		CommitResolveTimeout, CommitLockNotFound, UndeterminedLost, UndeterminedCommitted, UndeterminedLate,
		UndeterminedPrewritten,
	}
)

// Faults returns all faults.
func Faults() []Fault {
	return slices.Concat([]Fault{ConnRefused, LostAfter, LostRows, RegionMoved, LocksLost, ReadResolveTimeout,
		ReadSchemaChanged}, sendFaults, lockFaults, snapFaults, commitFaults)
}

// AllFaults returns a probability for each fault, for Config.Faults.
func AllFaults(probability float64) map[Fault]float64 {
	all := map[Fault]float64{}
	for _, f := range Faults() {
		all[f] = probability
	}
	return all
}

// Inject makes f strike the next times that it can, whatever its probability.
func (c *Cluster) Inject(f Fault, times int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queued[f] = times
}

// SetFaults replaces the probabilities of faults.
func (c *Cluster) SetFaults(faults map[Fault]float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.faults)
	clear(c.queued)
	for f, p := range faults {
		c.faults[f] = p
	}
}

// Struck returns how often each fault has struck.
func (c *Cluster) Struck() map[Fault]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	struck := make(map[Fault]int, len(c.struck))
	for f, n := range c.struck {
		struck[f] = n
	}
	return struck
}

// strike reports whether f strikes now.
func (c *Cluster) strike(f Fault) bool {
	hit := c.queued[f] > 0
	if hit {
		c.queued[f]--
	} else if p := c.faults[f]; p > 0 {
		hit = c.rnd.Float64() < p
	}
	if hit {
		c.struck[f]++
	}
	return hit
}

// strikeOne returns the first of faults that strikes.
func (c *Cluster) strikeOne(faults []Fault) (Fault, bool) {
	for _, f := range faults {
		if c.strike(f) {
			return f, true
		}
	}
	return "", false
}

var faultErrors = map[Fault]*mysql.MySQLError{
	RegionUnavailable:  number(erRegionUnavail, "Region is unavailable"),
	PDTimeout:          number(erPDTimeout, "PD server timeout: "),
	TiKVTimeout:        number(erTiKVTimeout, "TiKV server timeout"),
	TiKVBusy:           number(erTiKVBusy, "TiKV server is busy"),
	GCTooEarly:         number(erGCTooEarly, "GC life time is shorter than transaction duration"),
	ReadResolveTimeout: number(erResolveTimeout, "Resolve lock timeout"),
	ReadSchemaChanged:  number(erUnknown, "Information schema is changed. [try again later]"),
	LockWait:           number(erLockWaitTimeout, "Lock wait timeout exceeded; try restarting transaction"),
	Deadlock:           number(erDeadlock, "Deadlock found when trying to get lock; try restarting transaction"),
	WriteConflict:      number(erWriteConflict, "Write conflict [try again later]"),
	TxnRetryable:       number(erTxnRetryable, "Error: KV error safe to retry [try again later]"),
	SchemaChanged: number(erSchemaChanged,
		"Information schema is changed during the execution of the statement. [try again later]"),
	SchemaChangedNoCode:  number(erUnknown, "Information schema is changed. [try again later]"),
	CommitRegion:         number(erRegionUnavail, "Region is unavailable"),
	CommitTiKVTimeout:    number(erTiKVTimeout, "TiKV server timeout"),
	CommitTiKVBusy:       number(erTiKVBusy, "TiKV server is busy"),
	CommitResolveTimeout: number(erResolveTimeout, "Resolve lock timeout"),
	CommitLockNotFound:   number(erUnknown, "tikv aborts txn: Error(Txn(Error(Mvcc(Error(PessimisticLockNotFound { reason: LockMissingAmendFail })))))"),
}

// failCommit carries out a fault of a commit that could have succeeded.
func (c *Cluster) failCommit(f Fault, t *txn) error {
	switch f {
	case UndeterminedLost:
		c.end(t)
	case UndeterminedCommitted:
		c.apply(t)
	case UndeterminedLate:
		c.haunt(t, false)
	case UndeterminedPrewritten:
		c.haunt(t, true)
	default:
		c.end(t)
		return faultErrors[f]
	}
	// TiDB closes the connection without an answer.
	return mysql.ErrInvalidConn
}

// ghost is a commit without a client.
type ghost struct {
	due  time.Time
	last time.Time // after which it is given up
	// run tries to finish; it returns false if a lock is in the way.
	run func() (done bool)
	// giveUp ends it without a commit.
	giveUp func()
}

// haunt makes the commit of t happen later, or be given up then.
func (c *Cluster) haunt(t *txn, prewritten bool) {
	delay := time.Duration(1 + c.rnd.Int64N(int64(c.lateCommit)))
	due := time.Now().Add(delay)
	if prewritten {
		for key := range t.buffer {
			t.order = append(t.order, key) // perhaps for the second time
			c.locks[key] = &lock{owner: t, prewritten: true, expires: due.Add(lockTTL)}
		}
	} else {
		for _, key := range t.order {
			if l := c.locks[key]; l != nil && l.owner == t {
				l.expires = time.Now().Add(lockTTL)
			}
		}
	}
	t.session = nil
	dies := c.rnd.IntN(4) == 0
	c.ghosts = append(c.ghosts, &ghost{due: due, last: due.Add(lockTTL),
		run: func() bool {
			if dies {
				c.end(t)
				return true
			}
			wait, err := c.check(t)
			switch {
			case err != nil:
				c.end(t)
			case wait:
				return false
			default:
				c.apply(t)
			}
			return true
		},
		giveUp: func() { c.end(t) },
	})
}

// settle runs the ghosts that are due.
func (c *Cluster) settle() {
	if len(c.ghosts) == 0 {
		return
	}
	now := time.Now()
	due := c.ghosts
	c.ghosts = nil
	slices.SortStableFunc(due, func(a, b *ghost) int { return a.due.Compare(b.due) })
	for _, g := range due {
		switch {
		case now.Before(g.due):
			c.ghosts = append(c.ghosts, g)
		case g.run():
		case now.After(g.last):
			g.giveUp()
		default:
			g.due = now.Add(10 * time.Millisecond)
			c.ghosts = append(c.ghosts, g)
		}
	}
}
