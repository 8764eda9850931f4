package backend

import (
	"context"
	"errors"
	"time"
)

const (
	// AutoCompactPeriodic keeps the history of a period of time.
	AutoCompactPeriodic = "periodic"
	// AutoCompactRevision keeps a number of revisions.
	AutoCompactRevision = "revision"

	// revisionInterval is how often the revision mode compacts, as in etcd.
	revisionInterval = 5 * time.Minute
	// maxPeriod is the longest time between two periodic compactions, as in etcd.
	maxPeriod = time.Hour
	// samplesPerPeriod is how finely the periodic mode knows which revision was
	// current when.
	samplesPerPeriod = 10
)

// autoCompact compacts by itself, as etcd does in the mode configured.
func (b *Backend) autoCompact(ctx context.Context) {
	switch b.cfg.AutoCompactionMode {
	case AutoCompactPeriodic:
		if b.cfg.AutoCompactionRetention > 0 {
			b.compactPeriodically(ctx, b.cfg.AutoCompactionRetention)
		}
	case AutoCompactRevision:
		if b.cfg.AutoCompactionRevisions > 0 {
			b.compactByRevision(ctx, b.cfg.AutoCompactionRevisions)
		}
	}
}

// compactPeriodically compacts, once an hour or once a retention if that is
// shorter, to the revision that was current a retention ago.
func (b *Backend) compactPeriodically(ctx context.Context, retention time.Duration) {
	interval := min(retention, maxPeriod) / samplesPerPeriod
	history := newRevisionHistory(int(retention/interval) + 1)
	tick := time.NewTicker(max(interval, time.Millisecond))
	defer tick.Stop()
	sinceCompaction := 0
	for {
		history.add(b.Revision())
		sinceCompaction++
		if rev, full := history.oldest(); full && sinceCompaction > samplesPerPeriod && b.autoCompactTo(ctx, rev) {
			sinceCompaction = 1
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// revisionHistory holds the revisions of the last samples, oldest first.
type revisionHistory struct {
	revs []int64
	keep int
}

func newRevisionHistory(keep int) *revisionHistory { return &revisionHistory{keep: keep} }

func (h *revisionHistory) add(rev int64) {
	h.revs = append(h.revs, rev)
	if len(h.revs) > h.keep {
		h.revs = h.revs[1:]
	}
}

func (h *revisionHistory) oldest() (rev int64, full bool) {
	return h.revs[0], len(h.revs) == h.keep
}

func (b *Backend) compactByRevision(ctx context.Context, keep int64) {
	tick := time.NewTicker(revisionInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if rev := b.Revision() - keep; rev > 0 {
				b.autoCompactTo(ctx, rev)
			}
		}
	}
}

// autoCompactTo reports whether rev is compacted now.
func (b *Backend) autoCompactTo(ctx context.Context, rev int64) bool {
	_, err := b.Compact(ctx, rev, false)
	switch {
	case err == nil, errors.Is(err, ErrCompacted):
		return true
	case ctx.Err() == nil:
		b.log.Warn("auto-compaction failed", "revision", rev, "error", err)
	}
	return false
}
