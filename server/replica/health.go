package replica

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/coalesce"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

const (
	// feedSilence is how long a follower counts as fed after the last commit or heartbeat.
	feedSilence = timing.LeaderSilence
	// probeInterval is the shortest time between two successful probes of a member. Writable
	// relies on the last one until then.
	probeInterval = time.Second
	// probeCommit is the shortest time between two of them that commit something. The others
	// ask for a write that conflicts, which the database refuses where it would refuse any write. A cluster
	// whose members are asked every few seconds is at rest otherwise.
	probeCommit = time.Minute
)

// processStart is the start of measured times on the monotonic clock, which is never set. It
// does not advance while the machine is suspended.
var processStart = time.Now()

// Fed returns nil if the node, and so its watchers, learn of new commits: because it leads,
// because the leader sends them, or because it reads the log.
func (b *Replica) Fed() error {
	if err := b.Stopped(); err != nil || b.Leading() {
		return err
	}
	if quiet := time.Since(processStart) - time.Duration(b.fed.Load()); quiet > feedSilence {
		return fmt.Errorf("no commit or heartbeat for %s", quiet.Truncate(time.Second))
	}
	return nil
}

// noteFed records that the node knows the newest commit.
func (b *Replica) noteFed() { b.fed.Store(int64(time.Since(processStart))) }

// Writable returns nil if the database accepts writes from this node: it tries to write the probe
// row, which all members share, or has done so within probeInterval. Errors: ErrNotServing,
// ctx's and the database's.
func (b *Replica) Writable(ctx context.Context) error {
	if err := b.Stopped(); err != nil {
		return err
	}
	if b.probe.fresh() {
		return nil
	}
	_, err := b.probe.writes.Get(ctx)
	return err
}

// probe writes the probe row, once for concurrent callers.
type probe struct {
	writes *coalesce.Group[struct{}]

	mu      sync.Mutex
	at      time.Time // of the last success
	written time.Time // of the last commit; zero since a failure
}

func newProbe(b *Replica) *probe {
	p := &probe{}
	p.writes = coalesce.New(b.cfg.RequestTimeout, func(ctx context.Context) (struct{}, error) {
		started := time.Now()
		batch, value := b.store.BeginBatchWrite(), coder.EncodeInt64(started.Unix())
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
		p.note(started, commits, err)
		b.space.Refused(err)
		return struct{}{}, err
	})
	return p
}

// commitIsDue reports whether a probe that starts now must commit.
func (p *probe) commitIsDue(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Sub(p.written) >= probeCommit
}

// note records the result of a probe.
func (p *probe) note(started time.Time, committed bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil:
		p.written = time.Time{}
	case committed:
		p.at, p.written = started, started
	default:
		p.at = started
	}
}

func (p *probe) fresh() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.at) < probeInterval
}
