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
func (l *leader) autoCompact(ctx context.Context) {
	switch l.cfg.AutoCompactionMode {
	case AutoCompactPeriodic:
		if l.cfg.AutoCompactionRetention > 0 {
			l.compactPeriodically(ctx, l.cfg.AutoCompactionRetention)
		}
	case AutoCompactRevision:
		if l.cfg.AutoCompactionRevisions > 0 {
			l.compactByRevision(ctx, l.cfg.AutoCompactionRevisions)
		}
	}
}

// compactPeriodically compacts, once an hour or once a retention if that is
// shorter, to the revision that was current a retention ago.
func (l *leader) compactPeriodically(ctx context.Context, retention time.Duration) {
	interval := min(retention, maxPeriod) / samplesPerPeriod
	history := newRevisionHistory(int(retention/interval) + 1)
	tick := time.NewTicker(max(interval, time.Millisecond))
	defer tick.Stop()
	sinceCompaction := 0
	for {
		history.add(l.Revision())
		sinceCompaction++
		if rev, full := history.oldest(); full && sinceCompaction > samplesPerPeriod && l.autoCompactTo(ctx, rev) {
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

func (l *leader) compactByRevision(ctx context.Context, keep int64) {
	tick := time.NewTicker(revisionInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if rev := l.Revision() - keep; rev > 0 {
				l.autoCompactTo(ctx, rev)
			}
		}
	}
}

// autoCompactTo reports whether rev is compacted now.
func (l *leader) autoCompactTo(ctx context.Context, rev int64) bool {
	_, err := l.Compact(ctx, rev, false)
	switch {
	case err == nil, errors.Is(err, ErrCompacted):
		return true
	case ctx.Err() == nil:
		l.log.Warn("auto-compaction failed", "revision", rev, "error", err)
	}
	return false
}
