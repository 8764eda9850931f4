package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// Recover is for a database that lost acknowledged data: a replica that lagged was
// promoted, or a backup was restored. The servers then refuse to serve, because they would
// assign the lost revisions again, and clients that have seen those would take new data
// for old. Recover raises the revision far above all that were ever assigned, as etcdutl
// snapshot restore --bump-revision does, and marks everything below as compacted. A client
// that resumes from an old revision then gets "compacted", and lists again.
//
// It is the one exception from contiguous revisions. The revisions between the newest one
// left and the new one never existed. No log row names them, so that compaction and
// catch-up pass over them.

var (
	// ErrNothingToRecover: the table holds neither a fence row nor data.
	ErrNothingToRecover = errors.New("the table is empty: there is nothing to recover")
	// ErrFenceMoved: the fence row changed between Examine and Recover.
	ErrFenceMoved = errors.New("the fence row has changed since it was read: a server is running on this database; " +
		"stop all of them first")
)

// Findings is what Examine found in a table.
type Findings struct {
	// Token is what the fence row holds, nil if there is none that can be read.
	Token *coder.FenceToken
	// CompactRevision is -1 if nothing was compacted.
	CompactRevision int64
	// NewestLog and NewestIndex are the newest revisions that log rows and index
	// rows name, NewestVersion that of version rows; Examine looks for the last
	// only if there is no fence row. 0: no such row, or not looked for.
	NewestLog, NewestIndex, NewestVersion int64
	// Marker is what the data loss marker says, nil if there is none.
	Marker *coder.DataLoss
	// Keys is how many keys exist.
	Keys int64
	// Problems say in words where rows contradict each other.
	Problems []string

	rawToken, rawMarker []byte // nil: no row
}

// Newest returns the newest revision of all rows, lost ones that the data loss marker names
// included.
func (f *Findings) Newest() int64 {
	newest := max(f.CompactRevision, f.NewestLog, f.NewestIndex, f.NewestVersion)
	if f.Token != nil {
		newest = max(newest, f.Token.Revision)
	}
	if f.Marker != nil {
		newest = max(newest, f.Marker.Revision)
	}
	return newest
}

func (f *Findings) problem(format string, args ...any) {
	f.Problems = append(f.Problems, fmt.Sprintf(format, args...))
}

// Examine looks at the table without changing it. It reads a few rows and counts the
// index rows. If rows are newer than the fence row, it reads all index rows; if there is
// no fence row, all index rows and the keys of all version rows. Errors:
// ErrNothingToRecover for an empty table, those of RefuseUnfinished, the database's.
func Examine(ctx context.Context, store sqlstore.Store) (*Findings, error) {
	if err := RefuseUnfinished(ctx, store); err != nil {
		return nil, err
	}
	f := &Findings{CompactRevision: -1}
	if err := f.meta(ctx, store); err != nil {
		return nil, err
	}
	if err := f.log(ctx, store); err != nil {
		return nil, err
	}
	if err := f.rows(ctx, store); err != nil {
		return nil, err
	}
	if f.rawToken == nil && f.Newest() <= 0 {
		return nil, ErrNothingToRecover
	}
	f.compare()
	return f, nil
}

// compare notes where the rows contradict the fence row.
func (f *Findings) compare() {
	if l := f.Marker; l != nil && (f.Token == nil || fence.CheckMarker(*l, *f.Token) != nil) {
		f.problem("member %x has seen revision %d (term %d, sequence %d)", l.Member, l.Revision, l.Term, l.Sequence)
	}
	if f.Token == nil {
		return
	}
	rev := f.Token.Revision
	if f.NewestLog > rev {
		f.problem("log rows go up to revision %d, the fence row only to %d", f.NewestLog, rev)
	}
	if f.NewestIndex > rev {
		f.problem("index rows go up to revision %d, the fence row only to %d", f.NewestIndex, rev)
	}
	if f.CompactRevision > rev {
		f.problem("the compaction mark is at revision %d, the fence row only at %d", f.CompactRevision, rev)
	}
	if rev > max(f.CompactRevision, 1) && f.NewestLog < rev {
		f.problem("the fence row is at revision %d, log rows go up to %d only", rev, f.NewestLog)
	}
}

// meta reads the fence row, the compaction mark and the data loss marker.
func (f *Findings) meta(ctx context.Context, store sqlstore.Store) error {
	values, err := store.MultiGet(ctx, [][]byte{coder.FenceKey(), coder.CompactKey(), coder.DataLossKey()})
	if err != nil {
		return err
	}
	if f.rawToken = values[0]; f.rawToken == nil {
		f.problem("the fence row is missing")
	} else if c, err := coder.DecodeFenceToken(f.rawToken); err != nil {
		f.problem("the fence row cannot be read: %v", err)
	} else {
		f.Token = &c
	}
	if values[1] != nil {
		if f.CompactRevision, err = coder.DecodeInt64(values[1]); err != nil {
			f.problem("the compaction mark cannot be read: %v", err)
			f.CompactRevision = -1
		}
	}
	if f.rawMarker = values[2]; f.rawMarker != nil {
		if l, err := coder.DecodeDataLoss(f.rawMarker); err != nil {
			f.problem("the data loss marker cannot be read: %v", err)
		} else {
			f.Marker = &l
		}
	}
	return nil
}

// log finds the newest log row, and checks that the rows it names exist.
func (f *Findings) log(ctx context.Context, store sqlstore.Store) error {
	lo, hi := coder.LogBounds(0, math.MaxInt64)
	newest, found, err := sqlstore.First(store.Iter(ctx, sqlstore.Range{Start: lo, End: hi, Reverse: true, Limit: 1}))
	if !found {
		return err
	}
	rev, _, err := coder.DecodeLogKey(newest.Key)
	if err != nil {
		return err
	}
	f.NewestLog = rev
	changes, err := coder.DecodeLog(newest.Value)
	if err != nil {
		f.problem("the log row of revision %d cannot be read: %v", rev, err)
		return nil
	}
	var keys [][]byte
	var named []coder.Change
	for _, c := range changes {
		if c.Revision >= f.CompactRevision { // rows of older ones may be gone
			keys = append(keys, coder.EncodeVersionKey(c.Key, c.Revision), coder.EncodeIndexKey(c.Key))
			named = append(named, c)
		}
	}
	values, err := store.MultiGet(ctx, keys)
	if err != nil {
		return err
	}
	missing := 0
	for i, c := range named {
		version, index := values[2*i], values[2*i+1]
		x, err := coder.DecodeIndex(index)
		if version == nil && !c.Tombstone || err != nil || x.ModRevision < c.Revision {
			missing++
		}
	}
	if missing > 0 {
		f.problem("%d of the %d keys that the newest log row (revision %d) names lack its version or index row", missing,
			len(named), rev)
	}
	return nil
}

// rows counts the keys. It finds the newest index and version rows if the fence row is
// missing or older than them.
func (f *Findings) rows(ctx context.Context, store sqlstore.Store) error {
	every := []byte{0} // as a key and as an end: all keys
	lo, hi := coder.IndexBounds(every, every)
	known := int64(math.MaxInt64)
	if f.Token != nil {
		known = f.Token.Revision
	}
	live, newer, err := store.Count(ctx, lo, hi, known)
	if err != nil {
		return err
	}
	f.Keys = live
	if f.Token != nil && newer == 0 {
		return nil
	}
	if f.NewestIndex, err = newestRow(ctx, store, sqlstore.Range{Start: lo, End: hi},
		func(_, value []byte) (int64, error) {
			x, err := coder.DecodeIndex(value)
			return x.ModRevision, err
		}); err != nil || f.Token != nil {
		return err
	}
	lo, hi = coder.VersionBounds(every, every)
	f.NewestVersion, err = newestRow(ctx, store, sqlstore.Range{Start: lo, End: hi, KeysOnly: true},
		func(key, _ []byte) (int64, error) {
			_, rev, err := coder.DecodeVersionKey(key)
			return rev, err
		})
	return err
}

// scansAtATime bounds how many partitions newestRow reads in parallel.
const scansAtATime = 8

// newestRow returns the greatest revision of the rows of r. It reads the partitions of the
// table in parallel.
func newestRow(ctx context.Context, store sqlstore.Store, r sqlstore.Range,
	revision func(key, value []byte) (int64, error)) (int64, error) {
	partitions, err := store.GetPartitions(ctx, r.Start, r.End)
	if err != nil {
		return 0, err
	}
	newest := make([]int64, len(partitions))
	scan := func(ctx context.Context, i int) error {
		part := r
		part.Start, part.End = partitions[i].Start, partitions[i].End
		for row, err := range store.Iter(ctx, part) {
			if err != nil {
				return err
			}
			rev, err := revision(row.Key, row.Value)
			if err != nil {
				return err
			}
			newest[i] = max(newest[i], rev)
		}
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var scans sync.WaitGroup
	slots := make(chan struct{}, scansAtATime)
	for i := range partitions {
		slots <- struct{}{}
		scans.Go(func() {
			defer func() { <-slots }()
			if err := scan(ctx, i); err != nil {
				cancel(err) // the first error ends the other scans
			}
		})
	}
	scans.Wait()
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	return slices.Max(newest), nil
}

// Recovered is what Recover writes.
type Recovered struct {
	Token coder.FenceToken
	// CompactRevision is the new compaction mark, or the old one, -1 for none.
	CompactRevision int64
}

// Plan says what Recover would write: the newest revision raised by bump, which is
// at least 1, and everything below it compacted if markCompacted is set.
func (f *Findings) Plan(bump int64, markCompacted bool) (Recovered, error) {
	raised, err := Bump(max(f.Newest(), 1), bump)
	if err != nil {
		return Recovered{}, err
	}
	r := Recovered{Token: coder.FenceToken{Revision: raised}, CompactRevision: f.CompactRevision}
	if f.Token != nil {
		r.Token.Term, r.Token.Sequence = f.Token.Term, f.Token.Sequence
	} else {
		// Both are lost too. The revision only grows, so a second recovery without a
		// fence row does not choose the same values.
		r.Token.Term, r.Token.Sequence = r.Token.Revision, r.Token.Revision
	}
	if f.Marker != nil {
		r.Token.Term, r.Token.Sequence = max(r.Token.Term, f.Marker.Term), max(r.Token.Sequence, f.Marker.Sequence)
	}
	if r.Token.Term > math.MaxInt64-fence.RecoveredTerms || r.Token.Sequence > math.MaxInt64-fence.RecoveredSequences {
		return Recovered{}, fmt.Errorf("term %d or sequence %d of the fence row cannot be raised", r.Token.Term,
			r.Token.Sequence)
	}
	r.Token.Term += fence.RecoveredTerms
	r.Token.Sequence += fence.RecoveredSequences
	if markCompacted {
		r.CompactRevision = r.Token.Revision
	}
	return r, nil
}

// Recover writes r and removes the data loss marker and the counts row, in one atomic step that fences every server
// that still runs. Errors: ErrFenceMoved, without writing anything, if the fence row has
// changed since Examine; the database's.
func (f *Findings) Recover(ctx context.Context, store sqlstore.Store, r Recovered) error {
	for failures := 1; ; failures++ {
		err := f.write(ctx, store, r)
		if err == nil || !sqlstore.IsConflict(err) && !errors.Is(err, sqlstore.ErrUncertain) {
			return err
		}
		// The conflict may be with an earlier attempt whose outcome was unknown.
		written, rerr := tokenIs(ctx, store, r.Token)
		switch {
		case written:
			return nil
		case rerr == nil && sqlstore.IsConflict(err):
			return ErrFenceMoved
		}
		if retry.Database.Wait(ctx, failures) != nil {
			return errors.Join(err, rerr)
		}
	}
}

func (f *Findings) write(ctx context.Context, store sqlstore.Store, r Recovered) error {
	batch := store.BeginBatchWrite()
	if f.rawToken == nil {
		batch.PutIfNotExist(coder.FenceKey(), coder.EncodeFenceToken(r.Token))
	} else {
		batch.CAS(coder.FenceKey(), coder.EncodeFenceToken(r.Token), f.rawToken)
	}
	if r.CompactRevision >= 0 {
		batch.Put(coder.CompactKey(), coder.EncodeInt64(r.CompactRevision))
	}
	if f.rawMarker != nil {
		batch.Del(coder.DataLossKey())
	}
	batch.Del(coder.CountsKey()) // it may be of what was lost
	return batch.Commit(ctx)
}

// tokenIs reports whether the fence row holds want.
func tokenIs(ctx context.Context, store sqlstore.Store, want coder.FenceToken) (bool, error) {
	raw, err := store.Get(ctx, coder.FenceKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return false, nil
	}
	return err == nil && bytes.Equal(raw, coder.EncodeFenceToken(want)), err
}
