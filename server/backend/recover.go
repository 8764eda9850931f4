package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Recovery is the way out when the database lost what was acknowledged: a replica
// that was behind was promoted, or a backup was restored. The servers refuse to
// serve then, because the revisions that were lost would be given out again, and
// clients that have seen them would take new data for old. So the revision is
// raised far above all that was ever given out, as etcdutl snapshot restore
// --bump-revision does it, and everything below is marked as compacted: whoever
// resumes from an old revision is told so, and lists anew.
//
// It is the one exception from contiguous revisions (invariant 2). What is between
// the newest revision left and the new one never happened; no log row names it, so
// that compaction and catching up pass over it.

const (
	// recoveredTerms and recoveredSequences are what recovery adds to the chain
	// row's term and sequence. Some of both may have been lost as well, and a
	// server that is still there, or a packet on its way, must not find what it
	// remembers.
	recoveredTerms     = 1 << 20
	recoveredSequences = 1 << 50
)

var (
	// ErrNothingToRecover: the table holds neither a chain row nor data.
	ErrNothingToRecover = errors.New("the table is empty: there is nothing to recover")
	// ErrChainMoved: the chain row changed between Examine and Recover.
	ErrChainMoved = errors.New("the chain row has changed meanwhile: a server is running on this database; stop all of them first")
)

// Findings is what a table holds, as far as it can be told cheaply.
type Findings struct {
	// Chain is what the chain row holds, nil if there is none that can be read.
	Chain *coder.Chain
	// CompactRevision is -1 if nothing was compacted.
	CompactRevision int64
	// NewestLog and NewestIndex are the newest revisions that log rows and index
	// rows name, NewestVersion that of version rows; the last is only looked for
	// if there is no chain row. 0: no such row, or not looked for.
	NewestLog, NewestIndex, NewestVersion int64
	// Lost is what the lost row says, nil if there is none.
	Lost *coder.Lost
	// Keys is how many keys exist.
	Keys int64
	// Problems say in words where rows contradict each other.
	Problems []string

	rawChain, rawLost []byte // nil: no row
}

// Newest returns the newest revision of all that was found, or is known to be lost.
func (f *Findings) Newest() int64 {
	newest := max(f.CompactRevision, f.NewestLog, f.NewestIndex, f.NewestVersion)
	if f.Chain != nil {
		newest = max(newest, f.Chain.Revision)
	}
	if f.Lost != nil {
		newest = max(newest, f.Lost.Revision)
	}
	return newest
}

func (f *Findings) problem(format string, args ...any) {
	f.Problems = append(f.Problems, fmt.Sprintf(format, args...))
}

// Examine looks at the table without changing it. It reads a few rows and counts
// the index rows; if the chain row is missing, or rows are newer than it, it reads
// all index rows, and in the first case the keys of all version rows. It answers
// ErrNothingToRecover for an empty table.
func Examine(ctx context.Context, store sqlstore.Store) (*Findings, error) {
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
	if f.rawChain == nil && f.Newest() <= 0 {
		return nil, ErrNothingToRecover
	}
	f.compare()
	return f, nil
}

// compare holds what was found against the chain row.
func (f *Findings) compare() {
	if l := f.Lost; l != nil && (f.Chain == nil || judgeLost(*l, *f.Chain) != nil) {
		f.problem("member %x has seen revision %d (term %d, sequence %d)", l.Member, l.Revision, l.Term, l.Sequence)
	}
	if f.Chain == nil {
		return
	}
	rev := f.Chain.Revision
	if f.NewestLog > rev {
		f.problem("log rows go up to revision %d, the chain row only to %d", f.NewestLog, rev)
	}
	if f.NewestIndex > rev {
		f.problem("index rows go up to revision %d, the chain row only to %d", f.NewestIndex, rev)
	}
	if f.CompactRevision > rev {
		f.problem("the compaction mark is at revision %d, the chain row only at %d", f.CompactRevision, rev)
	}
	if rev > max(f.CompactRevision, 1) && f.NewestLog < rev {
		f.problem("the chain row is at revision %d, log rows go up to %d only", rev, f.NewestLog)
	}
}

// meta reads the chain row, the compaction mark and the lost row.
func (f *Findings) meta(ctx context.Context, store sqlstore.Store) error {
	values, err := store.MultiGet(ctx, [][]byte{coder.ChainKey(), coder.CompactKey(), coder.LostKey()})
	if err != nil {
		return err
	}
	if f.rawChain = values[0]; f.rawChain == nil {
		f.problem("the chain row is missing")
	} else if c, err := coder.DecodeChain(f.rawChain); err != nil {
		f.problem("the chain row cannot be read: %v", err)
	} else {
		f.Chain = &c
	}
	if values[1] != nil {
		if f.CompactRevision, err = coder.DecodeInt64(values[1]); err != nil {
			f.problem("the compaction mark cannot be read: %v", err)
			f.CompactRevision = -1
		}
	}
	if f.rawLost = values[2]; f.rawLost != nil {
		if l, err := coder.DecodeLost(f.rawLost); err != nil {
			f.problem("the lost row cannot be read: %v", err)
		} else {
			f.Lost = &l
		}
	}
	return nil
}

// log finds the newest log row, and holds the rows it names against it.
func (f *Findings) log(ctx context.Context, store sqlstore.Store) error {
	lo, hi := coder.LogBounds(0, math.MaxInt64)
	it := store.Iter(ctx, sqlstore.Range{Start: lo, End: hi, Reverse: true, Limit: 1})
	defer func() { _ = it.Close() }()
	if !it.Next() {
		return it.Err()
	}
	rev, _, err := coder.DecodeLogKey(it.Key())
	if err != nil {
		return err
	}
	f.NewestLog = rev
	changes, err := coder.DecodeLog(it.Value())
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
		if version == nil || err != nil || x.ModRevision < c.Revision {
			missing++
		}
	}
	if missing > 0 {
		f.problem("%d of the %d keys that the newest log row (revision %d) names lack its version or index row", missing, len(named), rev)
	}
	return nil
}

// rows counts the keys, and finds the newest index and version rows where the
// chain row cannot be relied on.
func (f *Findings) rows(ctx context.Context, store sqlstore.Store) error {
	every := []byte{0} // as a key and as an end: all keys
	lo, hi := coder.IndexBounds(every, every)
	known := int64(math.MaxInt64)
	if f.Chain != nil {
		known = f.Chain.Revision
	}
	live, newer, err := store.Count(ctx, lo, hi, known)
	if err != nil {
		return err
	}
	f.Keys = live
	if f.Chain != nil && newer == 0 {
		return nil
	}
	if f.NewestIndex, err = newestRow(ctx, store, sqlstore.Range{Start: lo, End: hi}, func(_, value []byte) (int64, error) {
		x, err := coder.DecodeIndex(value)
		return x.ModRevision, err
	}); err != nil || f.Chain != nil {
		return err
	}
	lo, hi = coder.VersionBounds(every, every)
	f.NewestVersion, err = newestRow(ctx, store, sqlstore.Range{Start: lo, End: hi, KeysOnly: true}, func(key, _ []byte) (int64, error) {
		_, rev, err := coder.DecodeVersionKey(key)
		return rev, err
	})
	return err
}

func newestRow(ctx context.Context, store sqlstore.Store, r sqlstore.Range, revision func(key, value []byte) (int64, error)) (newest int64, err error) {
	it := store.Iter(ctx, r)
	defer func() { _ = it.Close() }()
	for it.Next() {
		rev, err := revision(it.Key(), it.Value())
		if err != nil {
			return 0, err
		}
		newest = max(newest, rev)
	}
	return newest, it.Err()
}

// Recovered is what Recover writes.
type Recovered struct {
	Chain coder.Chain
	// CompactRevision is the new compaction mark, or the old one, -1 for none.
	CompactRevision int64
}

// Plan says what Recover would write: the newest revision raised by bump, which is
// at least 1, and everything below it compacted if markCompacted is set.
func (f *Findings) Plan(bump int64, markCompacted bool) (Recovered, error) {
	newest := max(f.Newest(), 1)
	if bump < 1 || newest > math.MaxInt64-bump {
		return Recovered{}, fmt.Errorf("the revision %d cannot be raised by %d", newest, bump)
	}
	r := Recovered{Chain: coder.Chain{Revision: newest + bump}, CompactRevision: f.CompactRevision}
	if f.Chain != nil {
		r.Chain.Term, r.Chain.Sequence = f.Chain.Term, f.Chain.Sequence
	} else {
		// Lost too. The revision has only ever grown, so a second recovery of this
		// kind does not come to the same values.
		r.Chain.Term, r.Chain.Sequence = r.Chain.Revision, r.Chain.Revision
	}
	if f.Lost != nil {
		r.Chain.Term, r.Chain.Sequence = max(r.Chain.Term, f.Lost.Term), max(r.Chain.Sequence, f.Lost.Sequence)
	}
	if r.Chain.Term > math.MaxInt64-recoveredTerms || r.Chain.Sequence > math.MaxInt64-recoveredSequences {
		return Recovered{}, fmt.Errorf("term %d or sequence %d of the chain row cannot be raised", r.Chain.Term, r.Chain.Sequence)
	}
	r.Chain.Term += recoveredTerms
	r.Chain.Sequence += recoveredSequences
	if markCompacted {
		r.CompactRevision = r.Chain.Revision
	}
	return r, nil
}

// Recover writes r, and removes the lost row, in one atomic step that fences every server
// that still runs.
// It answers ErrChainMoved, nothing being written, if the chain row is not as it
// was found.
func (f *Findings) Recover(ctx context.Context, store sqlstore.Store, r Recovered) error {
	retry := &retrier{}
	for {
		err := f.write(ctx, store, r)
		var conflict *sqlstore.Conflict
		if err == nil || !errors.As(err, &conflict) && !errors.Is(err, sqlstore.ErrUncertain) {
			return err
		}
		// A conflict may be with an attempt of ours that was thought lost.
		written, rerr := chainIs(ctx, store, r.Chain)
		switch {
		case written:
			return nil
		case rerr == nil && conflict != nil:
			return ErrChainMoved
		}
		if retry.wait(ctx) != nil {
			return errors.Join(err, rerr)
		}
	}
}

func (f *Findings) write(ctx context.Context, store sqlstore.Store, r Recovered) error {
	batch := store.BeginBatchWrite()
	if f.rawChain == nil {
		batch.PutIfNotExist(coder.ChainKey(), coder.EncodeChain(r.Chain))
	} else {
		batch.CAS(coder.ChainKey(), coder.EncodeChain(r.Chain), f.rawChain)
	}
	if r.CompactRevision >= 0 {
		batch.Put(coder.CompactKey(), coder.EncodeInt64(r.CompactRevision))
	}
	if f.rawLost != nil {
		batch.Del(coder.LostKey())
	}
	return batch.Commit(ctx)
}

// chainIs reports whether the chain row holds want.
func chainIs(ctx context.Context, store sqlstore.Store, want coder.Chain) (bool, error) {
	raw, err := store.Get(ctx, coder.ChainKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return false, nil
	}
	return err == nil && bytes.Equal(raw, coder.EncodeChain(want)), err
}
