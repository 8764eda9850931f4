package quota

import (
	"context"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/coalesce"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

const (
	// probeInterval is the shortest time between two successful probes of a member. Writable
	// relies on the last one until then.
	probeInterval = time.Second
	// probeCommit is the shortest time between two of them that commit something. The others
	// ask for a write that conflicts, which the database refuses where it would refuse any write. A cluster
	// whose members are asked every few seconds is at rest otherwise.
	probeCommit = time.Minute
)

// Probe finds out whether the database accepts writes. Safe for concurrent use.
type Probe struct {
	store   sqlstore.Store
	space   *Space
	stopped func() error // why the node serves nothing, nil while it serves
	writes  *coalesce.Group[struct{}]

	mu      sync.Mutex
	at      time.Time // of the last success; zero since a failure
	written time.Time // of the last commit; zero since a failure
}

// NewProbe returns a probe of store, whose attempts take at most timeout. It reports to space that
// the disk is full. The caller must close it.
func NewProbe(store sqlstore.Store, space *Space, stopped func() error, timeout time.Duration) *Probe {
	p := &Probe{store: store, space: space, stopped: stopped}
	p.writes = coalesce.New(timeout, func(ctx context.Context) (struct{}, error) { return struct{}{}, p.write(ctx) })
	return p
}

// Close ends the attempt under way. Later calls of Writable return reason.
func (p *Probe) Close(reason error) { p.writes.Close(reason) }

// Writable returns nil if the database accepts writes from this node: it tries to write the probe
// row, which all members share, or has done so within probeInterval. Concurrent callers share an
// attempt. Errors: mvcc.ErrNotServing, ctx's and the database's.
func (p *Probe) Writable(ctx context.Context) error {
	if err := p.stopped(); err != nil {
		return err
	}
	if p.fresh() {
		return nil
	}
	_, err := p.writes.Get(ctx)
	return err
}

// write tries to write the probe row.
func (p *Probe) write(ctx context.Context) error {
	started := time.Now()
	batch, value := p.store.BeginBatchWrite(), coder.EncodeInt64(started.Unix())
	commits := p.commitIsDue(started)
	if commits {
		batch.Put(coder.ProbeKey(), value)
	} else {
		batch.PutIfNotExist(coder.ProbeKey(), value)
	}
	err := batch.Commit(ctx)
	if sqlstore.IsConflict(err) {
		err = nil
	}
	p.record(started, commits, err)
	p.space.Refused(err)
	return err
}

// commitIsDue reports whether a probe that starts now must commit.
func (p *Probe) commitIsDue(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Sub(p.written) >= probeCommit
}

// record records the result of a probe.
func (p *Probe) record(started time.Time, committed bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil:
		p.at, p.written = time.Time{}, time.Time{}
	case committed:
		p.at, p.written = started, started
	default:
		p.at = started
	}
}

func (p *Probe) fresh() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.at) < probeInterval
}
