package repair

import (
	"bytes"
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

// table is a store with rows written by hand: one put of a key per revision.
type table struct {
	*memstore.Store
	t *testing.T
}

func newTable(t *testing.T) table {
	s := memstore.New()
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return table{s, t}
}

func (s table) put(key, value []byte) {
	s.t.Helper()
	b := s.BeginBatchWrite()
	b.Put(key, value)
	require.NoError(s.t, b.Commit(context.Background()))
}

func (s table) del(key []byte) {
	s.t.Helper()
	b := s.BeginBatchWrite()
	b.Del(key)
	require.NoError(s.t, b.Commit(context.Background()))
}

// fill puts a key at each revision of [from, to], and sets the fence row.
func (s table) fill(from, to int64) {
	s.t.Helper()
	for rev := from; rev <= to; rev++ {
		key := []byte{'k', byte(rev)}
		r := &coder.Record{Key: key, CreateRevision: rev, ModRevision: rev, Version: 1}
		s.put(coder.EncodeVersionKey(key, rev), coder.EncodeVersion(r))
		s.put(coder.EncodeIndexKey(key), coder.EncodeIndex(coder.Index{ModRevision: rev, CreateRevision: rev, Version: 1}))
		s.put(coder.EncodeLogKey(rev, 1), coder.EncodeLog(time.Time{}, []coder.Change{{Revision: rev, Key: key}})[0])
	}
	s.put(coder.FenceKey(), coder.EncodeFenceToken(coder.FenceToken{Sequence: 2 * to, Term: 3, Revision: to}))
}

func (s table) token() coder.FenceToken {
	s.t.Helper()
	raw, err := s.Get(context.Background(), coder.FenceKey())
	require.NoError(s.t, err)
	c, err := coder.DecodeFenceToken(raw)
	require.NoError(s.t, err)
	return c
}

func (s table) examine() *Findings {
	s.t.Helper()
	f, err := Examine(context.Background(), s)
	require.NoError(s.t, err)
	return f
}

func TestExamineFindsWhatContradicts(t *testing.T) {
	for name, c := range map[string]struct {
		spoil    func(table)
		problems []string
		newest   int64
	}{
		"nothing wrong": {func(table) {}, nil, 20},
		"the newest change is a deletion, which has no version row": {func(s table) {
			key := []byte{'k', 19}
			s.del(coder.EncodeVersionKey([]byte{'k', 20}, 20))
			s.del(coder.EncodeIndexKey([]byte{'k', 20}))
			s.put(coder.EncodeIndexKey(key),
				coder.EncodeIndex(coder.Index{ModRevision: 20, PrevRevision: 19, Tombstone: true}))
			s.put(coder.EncodeLogKey(20, 1), coder.EncodeLog(time.Time{},
				[]coder.Change{{Revision: 20, Key: key, PrevRevision: 19, Tombstone: true}})[0])
		}, nil, 20},
		"the fence row is older": {func(s table) {
			s.put(coder.FenceKey(), coder.EncodeFenceToken(coder.FenceToken{Sequence: 9, Term: 2, Revision: 15}))
		}, []string{"log rows go up to revision 20, the fence row only to 15", "index rows go up to revision 20"}, 20},
		"only an index row is newer": {func(s table) {
			s.put(coder.EncodeIndexKey([]byte("x")), coder.EncodeIndex(coder.Index{ModRevision: 31}))
		}, []string{"index rows go up to revision 31"}, 31},
		"the log ends early": {func(s table) { s.del(coder.EncodeLogKey(20, 1)) }, []string{"log rows go up to 19 only"}, 20},
		"a version row is gone": {func(s table) {
			s.del(coder.EncodeVersionKey([]byte{'k', 20}, 20))
		}, []string{"1 of the 1 keys that the newest log row (revision 20) names lack"}, 20},
		"the fence row is gone": {func(s table) { s.del(coder.FenceKey()) }, []string{"the fence row is missing"}, 20},
		"the fence row and the log are gone": {func(s table) {
			s.del(coder.FenceKey())
			for rev := int64(2); rev <= 20; rev++ {
				s.del(coder.EncodeLogKey(rev, 1))
			}
			s.del(coder.EncodeIndexKey([]byte{'k', 20}))
		}, []string{"the fence row is missing"}, 20},
		"the fence row is another's": {func(s table) { s.put(coder.FenceKey(), []byte("?")) },
			[]string{"the fence row cannot be read"}, 20},
		"compacted beyond": {func(s table) { s.put(coder.CompactKey(), coder.EncodeInt64(44)) },
			[]string{"the compaction mark is at revision 44"}, 44},
		"compacted": {func(s table) {
			s.put(coder.CompactKey(), coder.EncodeInt64(20))
			for rev := int64(2); rev <= 20; rev++ {
				s.del(coder.EncodeLogKey(rev, 1))
			}
		}, nil, 20},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTable(t)
			s.fill(2, 20)
			c.spoil(s)
			f := s.examine()
			require.Equal(t, c.newest, f.Newest())
			require.Len(t, f.Problems, len(c.problems))
			for i, p := range c.problems {
				require.Contains(t, f.Problems[i], p)
			}
			// Whatever is wrong, the way out leads beyond all of it.
			r, err := f.Plan(100, true)
			require.NoError(t, err)
			require.NoError(t, f.Recover(context.Background(), s, r))
			got := s.token()
			require.Equal(t, r.Token, got)
			require.Equal(t, c.newest+100, got.Revision)
			require.GreaterOrEqual(t, got.Term, int64(1<<20))
			require.GreaterOrEqual(t, got.Sequence, int64(1<<50))
			require.Equal(t, c.newest+100, s.examine().CompactRevision)
		})
	}
}

func TestNothingToRecover(t *testing.T) {
	s := newTable(t)
	s.put(coder.IdentityKey(), []byte("x"))
	_, err := Examine(t.Context(), s)
	require.ErrorIs(t, err, ErrNothingToRecover)
}

func TestRecoverPlans(t *testing.T) {
	s := newTable(t)
	s.fill(2, 5)
	f := s.examine()
	for _, bump := range []int64{0, -1, math.MaxInt64 - 4, math.MaxInt64} {
		_, err := f.Plan(bump, true)
		require.Error(t, err, "raised by %d", bump)
	}
	most, err := f.Plan(math.MaxInt64-5, false)
	require.NoError(t, err)
	require.EqualValues(t, math.MaxInt64, most.Token.Revision)
	require.EqualValues(t, -1, most.CompactRevision)
	// A fence row lost twice does not get the same term and sequence twice.
	s.del(coder.FenceKey())
	var seen []coder.FenceToken
	for range 2 {
		f := s.examine()
		r, err := f.Plan(1, true)
		require.NoError(t, err)
		require.NoError(t, f.Recover(t.Context(), s, r))
		seen = append(seen, r.Token)
		s.del(coder.FenceKey())
	}
	require.Greater(t, seen[1].Term, seen[0].Term)
	require.Greater(t, seen[1].Sequence, seen[0].Sequence)
}

func TestRecoverIsRefusedWhileAServerCommits(t *testing.T) {
	for name, gone := range map[string]bool{"fence row": false, "no fence row": true} {
		s := newTable(t)
		s.fill(2, 5)
		if gone {
			s.del(coder.FenceKey())
		}
		f := s.examine()
		r, err := f.Plan(10, true)
		require.NoError(t, err)
		moved := coder.FenceToken{Sequence: 11, Term: 4, Revision: 5}
		s.put(coder.FenceKey(), coder.EncodeFenceToken(moved))
		require.ErrorIs(t, f.Recover(context.Background(), s, r), ErrFenceMoved, "%s", name)
		require.Equal(t, moved, s.token())
		_, err = s.Get(t.Context(), coder.CompactKey())
		require.ErrorIs(t, err, sqlstore.ErrKeyNotFound, "%s: something was written", name)
	}
}

// doubtful is a store whose commits take effect, or not, and say neither.
type doubtful struct {
	table
	effects []bool
}

func (d *doubtful) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(d.table.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		if len(d.effects) == 0 {
			return b.BatchWrite.Commit(ctx)
		}
		effect := d.effects[0]
		d.effects = d.effects[1:]
		if effect {
			if err := b.BatchWrite.Commit(ctx); err != nil {
				return err
			}
		}
		return sqlstore.ErrUncertain
	})
}

func TestRecoverResolvesAnUnknownOutcome(t *testing.T) {
	for _, effects := range [][]bool{{true}, {false}, {false, true}, {false, false}} {
		s := newTable(t)
		s.fill(2, 5)
		f := s.examine()
		r, err := f.Plan(10, true)
		require.NoError(t, err)
		require.NoError(t, f.Recover(t.Context(), &doubtful{s, effects}, r), "outcomes %v", effects)
		require.Equal(t, r.Token, s.token(), "outcomes %v", effects)
	}
}

// partitioned is a table of several partitions, whose borders are between and at rows.
type partitioned struct{ table }

func (s partitioned) GetPartitions(_ context.Context, start, end []byte) ([]sqlstore.Partition, error) {
	var parts []sqlstore.Partition
	for rev := int64(2); rev <= 9; rev += 3 {
		var border []byte
		if lo, _ := coder.VersionBounds([]byte{0}, []byte{0}); bytes.HasPrefix(start, lo[:4]) {
			border = coder.EncodeVersionKey([]byte{'k', byte(rev)}, rev)
		} else {
			border = append(coder.EncodeIndexKey([]byte{'k', byte(rev)}), 0)
		}
		parts = append(parts, sqlstore.Partition{Start: start, End: border})
		start = border
	}
	return append(parts, sqlstore.Partition{Start: start, End: end}), nil
}

// TestEveryPartitionIsExamined finds the newest rows in each partition, and returns the
// error of any.
func TestEveryPartitionIsExamined(t *testing.T) {
	t.Parallel()
	for newest := int64(1); newest <= 10; newest++ {
		s := partitioned{newTable(t)}
		s.fill(1, 10)
		s.del(coder.FenceKey())
		for rev := newest + 1; rev <= 10; rev++ { // the rows of others are older
			key := []byte{'k', byte(rev)}
			s.put(coder.EncodeIndexKey(key), coder.EncodeIndex(coder.Index{ModRevision: 1, CreateRevision: 1, Version: 1}))
			s.del(coder.EncodeVersionKey(key, rev))
		}
		f, err := Examine(t.Context(), s)
		require.NoError(t, err)
		require.Equal(t, []int64{newest, newest}, []int64{f.NewestIndex, f.NewestVersion})
		s.put(coder.EncodeIndexKey([]byte{'k', byte(newest)}), []byte("unreadable"))
		_, err = Examine(t.Context(), s)
		require.Error(t, err, "an unreadable row in the partition of revision %d", newest)
	}
}
