package lease

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Leader is the leadership that a Lessor serves.
type Leader interface {
	// VerifyLeader returns nil if no other leader can have acknowledged anything before the call.
	VerifyLeader(ctx context.Context) error
	// Await waits until revision rev is visible, or the leadership ends.
	Await(ctx context.Context, rev int64) error
	// ErrNotLeader returns the error of a request that was not executed.
	ErrNotLeader() error
}

// Config configures a Lessor. All fields but Policies are required.
type Config struct {
	Store    sqlstore.Store
	Leader   Leader
	Alarms   *quota.Alarms
	Space    *quota.Space
	View     auth.View // permits of calls that the sequencer does not execute are checked on it
	MinTTL   int64     // in seconds; shorter leases are granted for MinTTL
	Policies []Policy
	// RequestTimeout bounds a commit and the reads for it.
	RequestTimeout time.Duration
	// Clock returns the time by which leases end; nil: time.Now. It may stand still for some
	// time, and must not go back.
	Clock   func() time.Time
	Metrics *Metrics
	Log     *slog.Logger
}

// Lessor keeps the leases of one leadership. Safe for concurrent use.
type Lessor struct {
	cfg      Config
	pipeline *write.Pipeline
	policies []policy // only the sequencer uses them

	revocations *semaphore.Weighted // keys that pending revocations delete, see revocationRoom
	chunkSize   chunkSize

	mu     sync.Mutex
	leases map[int64]*lease
	due    dueHeap
	closed bool          // the leader hands over: renewals are refused
	wake   chan struct{} // the head of the heap has changed
}

// New returns a Lessor without leases.
func New(cfg Config) *Lessor {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	l := &Lessor{
		cfg: cfg, revocations: semaphore.NewWeighted(revocationRoom),
		leases: make(map[int64]*lease), wake: make(chan struct{}, 1),
	}
	for _, p := range cfg.Policies {
		l.policies = append(l.policies, policy{Policy: p})
	}
	return l
}

// Lease implements write.Leases.
func (l *Lessor) Lease(id int64) (coder.Lease, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	le := l.leases[id]
	if le == nil {
		return coder.Lease{}, false
	}
	return coder.Lease{ID: id, TTL: le.ttl, Policy: le.policy, Revoking: le.revoking,
		Remaining: le.remaining(l.cfg.Clock())}, true
}

// Len returns the number of leases.
func (l *Lessor) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.leases)
}

// bound limits a request to the request timeout.
func (l *Lessor) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, l.cfg.RequestTimeout, mvcc.ErrTimeout)
}
