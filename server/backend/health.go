package backend

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
)

const (
	// feedSilence is how long a follower that learns nothing of commits, or of there
	// being none, goes on saying that it does.
	feedSilence = 3 * time.Second
	// probeInterval is how long a write that was tried speaks for the next one:
	// however often they are asked, members write no more often than this.
	probeInterval = time.Second
)

// Stopped returns nil, or why the node serves nothing any more: it is no member, or
// the database lost data, or it shuts down. It wraps ErrNotServing.
func (b *Backend) Stopped() error { return b.serving() }

// Fed returns nil if the node knows of new commits as they come, so that its watchers
// do: because it makes them, or hears of them from the leader, or reads the log.
func (b *Backend) Fed() error {
	if err := b.serving(); err != nil || b.Leading() {
		return err
	}
	if quiet := time.Since(processStart) - time.Duration(b.fed.Load()); quiet > feedSilence {
		return fmt.Errorf("nothing was heard of commits for %s", quiet.Truncate(time.Second))
	}
	return nil
}

// noteFed takes down that the node knows what there is.
func (b *Backend) noteFed() { b.fed.Store(int64(time.Since(processStart))) }

// Writable returns nil if the database takes writes from this node: it writes one row,
// the same for all members, or did so a moment ago. Errors: ErrNotServing, ctx's and
// the database's.
func (b *Backend) Writable(ctx context.Context) error {
	if err := b.serving(); err != nil {
		return err
	}
	if b.probe.fresh() {
		return nil
	}
	_, err := b.probe.writes.get(ctx)
	return err
}

// probe is what is known of whether the database takes writes.
type probe struct {
	writes *shared[struct{}] // one for all who ask at a time

	mu sync.Mutex
	at time.Time // of the last success
}

func newProbe(b *Backend) *probe {
	p := &probe{}
	p.writes = newShared(b.cfg.RequestTimeout, func(ctx context.Context) (struct{}, error) {
		started := time.Now()
		batch := b.store.BeginBatchWrite()
		batch.Put(coder.ProbeKey(), coder.EncodeInt64(started.Unix()))
		err := batch.Commit(ctx)
		if err == nil {
			p.mu.Lock()
			p.at = started
			p.mu.Unlock()
		}
		return struct{}{}, err
	})
	return p
}

func (p *probe) fresh() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.at) < probeInterval
}
