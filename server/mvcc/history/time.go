package history

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Errors of RevisionAt.
var (
	// ErrFutureTime: the time is later than now, and than the newest commit.
	ErrFutureTime = errors.New("time is in the future")
	// ErrBeforeFirst: nothing is compacted, and the time is earlier than the first commit.
	ErrBeforeFirst = errors.New("time is before the first commit")
)

// errNoCommit: no log row has what was looked for.
var errNoCommit = errors.New("history: no such commit")

// NewestTime returns when the newest commit of store's log was made; the zero time if there is none.
func NewestTime(ctx context.Context, store sqlstore.Store) (time.Time, error) {
	lo, hi := coder.LogBounds(0, math.MaxInt64)
	_, row, err := firstCommit(ctx, store, sqlstore.Range{Start: lo, End: hi, Reverse: true})
	if errors.Is(err, errNoCommit) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return coder.DecodeLogTime(row)
}

// Commit is what a log row says of its commit: the revisions that it made, and when.
type Commit struct {
	First, Last int64
	At          time.Time
}

// Has reports whether the commit made a revision. The zero Commit made none.
func (c Commit) Has(revision int64) bool { return c.First <= revision && revision <= c.Last }

// CommitOf returns the commit that made a revision; the zero Commit if it is not known: the revision is compacted, has
// no changes or is yet to come. It reads one row.
func (l *Log) CommitOf(ctx context.Context, revision int64) (Commit, error) {
	lo, hi := coder.LogBounds(revision, math.MaxInt64)
	last, row, err := firstCommit(ctx, l.store, sqlstore.Range{Start: lo, End: hi})
	if errors.Is(err, errNoCommit) {
		return Commit{}, nil
	}
	if err != nil {
		return Commit{}, err
	}
	changes, err := coder.DecodeLog(row)
	if err != nil || len(changes) == 0 || changes[0].Revision > revision {
		return Commit{}, err
	}
	at, err := coder.DecodeLogTime(row)
	return Commit{First: changes[0].Revision, Last: last, At: at}, err
}

// Times returns when versions were committed; the zero time where that is not known. It reads one row for each commit
// of neighbours.
func (l *Log) Times(ctx context.Context, versions []*coder.Record) ([]time.Time, error) {
	times := make([]time.Time, len(versions))
	var commit Commit
	for i, v := range versions {
		if !commit.Has(v.ModRevision) {
			var err error
			if commit, err = l.CommitOf(ctx, v.ModRevision); err != nil {
				return nil, err
			}
		}
		times[i] = commit.At
	}
	return times, nil
}

// RevisionAt returns the last revision up to newest, the visible one, that was committed at or before a time. It
// searches the log in at most 64 statements of one row each. Errors: mvcc.ErrCompacted, ErrBeforeFirst and
// ErrFutureTime, which say what is known; the database's.
func (l *Log) RevisionAt(ctx context.Context, at time.Time, newest int64) (int64, error) {
	at = at.Round(0) // without the reading of a monotonic clock
	found := int64(-1)
	var last, next time.Time // of the last commit up to at, and of the first one after it
	for lo, hi := int64(0), newest; lo <= hi; {
		mid := lo + (hi-lo)/2
		start, end := coder.LogBounds(mid, math.MaxInt64)
		rev, row, err := firstCommit(ctx, l.store, sqlstore.Range{Start: start, End: end})
		if errors.Is(err, errNoCommit) {
			hi = mid - 1
			continue
		}
		if err != nil {
			return 0, err
		}
		made, err := coder.DecodeLogTime(row)
		switch {
		case err != nil:
			return 0, err
		case made.After(at):
			next, hi = made, mid-1
		default:
			last, found, lo = made, min(rev, newest), rev+1
		}
	}
	if next.IsZero() && at.After(last) && at.After(time.Now()) {
		return 0, fmt.Errorf("%w: %s", ErrFutureTime, FormatTime(at))
	}
	// What compaction removed during the search was not found.
	mark, err := l.mark(ctx)
	switch {
	case err != nil:
		return 0, err
	case found >= 0 && found >= mark:
		return found, nil
	case mark >= 0:
		return 0, l.compactedAt(ctx, at, mark)
	case next.IsZero():
		return 0, fmt.Errorf("%w: there is none", ErrBeforeFirst)
	}
	return 0, fmt.Errorf("%w, which is of %s: %s", ErrBeforeFirst, FormatTime(next), FormatTime(at))
}

// compactedAt returns the error for a time before the compact revision, mark.
func (l *Log) compactedAt(ctx context.Context, at time.Time, mark int64) error {
	first, err := l.CommitOf(ctx, mark)
	if err != nil {
		return err
	}
	return &CompactedTime{At: at, Mark: mark, MarkAt: first.At}
}

// CompactedTime is the error for a time before the compact revision. It is a mvcc.ErrCompacted.
type CompactedTime struct {
	At     time.Time
	Mark   int64     // the compact revision
	MarkAt time.Time // when it was committed; the zero time if that is not known
}

// Known says what can be read.
func (e *CompactedTime) Known() string {
	if e.MarkAt.IsZero() {
		return fmt.Sprintf("history begins at revision %d, and not at %s", e.Mark, FormatTime(e.At))
	}
	return fmt.Sprintf("history begins at revision %d of %s, and not at %s", e.Mark, FormatTime(e.MarkAt),
		FormatTime(e.At))
}

// Error has etcd's text, and what can be read.
func (e *CompactedTime) Error() string {
	return "etcdserver: mvcc: required revision has been compacted: " + e.Known()
}

func (e *CompactedTime) Unwrap() error { return mvcc.ErrCompacted }

// ParseTime reads a time in RFC 3339, or how long ago it was, as in 10m or 36h.
func ParseTime(text string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil {
		if ago < 0 {
			return time.Time{}, fmt.Errorf("%q is in the future", text)
		}
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is neither a time like 2026-11-27T15:04:05Z nor a duration like 10m", text)
	}
	return at, nil
}

// FormatTime returns the time of a commit in RFC 3339, in UTC and milliseconds; "" for the zero time.
func FormatTime(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// firstCommit returns the first log row of r: the newest revision of its commit, and its value. Errors: errNoCommit,
// the database's.
func firstCommit(ctx context.Context, store sqlstore.Store, r sqlstore.Range) (int64, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r.Limit = 1
	row, ok, err := sqlstore.First(store.Iter(ctx, r))
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("reading the log: %w", err)
	case !ok:
		return 0, nil, errNoCommit
	}
	rev, _, err := coder.DecodeLogKey(row.Key)
	return rev, row.Value, err
}
