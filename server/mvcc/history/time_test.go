package history

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func second(n float64) time.Time { return time.UnixMilli(int64(1000 * n)) }

// newTimes returns a log that goes on from revision 1000 after a gap, in one commit of three revisions.
func newTimes(t *testing.T, mark int64) (*Log, sqlstore.Store) {
	s := newTable(t, []string{"a"}, []string{"a", "b"}, []string{"-a"}, []string{"a"})
	batch := s.BeginBatchWrite()
	var changes []coder.Change
	for rev := int64(1000); rev < 1003; rev++ {
		changes = append(changes, coder.Change{Revision: rev, Key: []byte("c")})
	}
	batch.Put(coder.EncodeLogKey(1002, 1), coder.EncodeLog(second(9), changes)[0])
	batch.Put(coder.EncodeLogKey(1002, 2), coder.EncodeLog(second(9), changes[2:])[0])
	require.NoError(t, batch.Commit(t.Context()))
	return New(s, markAt(mark)), s
}

func TestRevisionAtATime(t *testing.T) {
	for _, c := range []struct {
		at           float64
		mark, newest int64
		want         int64
		err          error
		says         string
	}{
		{2, -1, 1002, 2, nil, ""},
		{2.999, -1, 1002, 2, nil, ""},
		{3, -1, 1002, 3, nil, ""},
		{8.999, -1, 1002, 5, nil, ""},
		{9, -1, 1002, 1002, nil, ""},
		{9, -1, 1001, 1001, nil, ""}, // a follower may show a part of a commit
		{100, -1, 1002, 1002, nil, ""},
		{100, -1, 4, 4, nil, ""},
		{1.999, -1, 1002, 0, ErrBeforeFirst, "which is of 1970-01-01T00:00:02.000Z: 1970-01-01T00:00:01.999Z"},
		{3, 3, 1002, 3, nil, ""},
		{2.5, 3, 1002, 0, mvcc.ErrCompacted,
			"etcdserver: mvcc: required revision has been compacted: history begins at revision 3 of 1970-01-01T00:00:03.000Z"},
		{5, 900, 1002, 0, mvcc.ErrCompacted, "history begins at revision 900, and not at 1970"},
		{1, 900, 1002, 0, mvcc.ErrCompacted, "history begins at revision 900, and not at 1970"},
	} {
		log, _ := newTimes(t, c.mark)
		got, err := log.RevisionAt(t.Context(), second(c.at), c.newest)
		require.ErrorIs(t, err, c.err, "%+v", c)
		require.Equal(t, c.want, got, "%+v", c)
		if c.says != "" {
			require.ErrorContains(t, err, c.says)
		}
	}
	log, _ := newTimes(t, -1)
	_, err := log.RevisionAt(t.Context(), time.Now().Add(time.Hour), 1002)
	require.ErrorIs(t, err, ErrFutureTime)
	_, err = New(newTable(t), markAt(-1)).RevisionAt(t.Context(), time.Now(), 1)
	require.ErrorIs(t, err, ErrBeforeFirst)
}

// A commit whose leader's clock is ahead is found by its time.
func TestTimeOfACommitIsNotInTheFuture(t *testing.T) {
	ahead := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	s := newTable(t)
	batch := s.BeginBatchWrite()
	batch.Put(coder.EncodeLogKey(2, 1), coder.EncodeLog(ahead, []coder.Change{{Revision: 2, Key: []byte("a")}})[0])
	require.NoError(t, batch.Commit(t.Context()))
	got, err := New(s, markAt(-1)).RevisionAt(t.Context(), ahead, 2)
	require.NoError(t, err)
	require.EqualValues(t, 2, got)
	newest, err := NewestTime(t.Context(), s)
	require.NoError(t, err)
	require.True(t, ahead.Equal(newest))
}

func TestTimeOfARevision(t *testing.T) {
	log, store := newTimes(t, -1)
	for rev, want := range map[int64]time.Time{
		1: {}, 2: second(2), 5: second(5), 6: {}, 999: {}, 1000: second(9), 1002: second(9), 1003: {},
	} {
		got, err := log.CommitOf(t.Context(), rev)
		require.NoError(t, err)
		require.True(t, want.Equal(got.At), "revision %d: %+v", rev, got)
		require.Equal(t, !want.IsZero(), got.Has(rev))
	}
	newest, err := NewestTime(t.Context(), store)
	require.NoError(t, err)
	require.True(t, second(9).Equal(newest))
	newest, err = NewestTime(t.Context(), newTable(t))
	require.NoError(t, err)
	require.Zero(t, newest)
}

// counted counts the rows that are read, and the ranges.
type counted struct {
	sqlstore.Store
	rows, ranges int
}

func (c *counted) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	c.ranges++
	return func(yield func(sqlstore.Row, error) bool) {
		for row, err := range c.Store.Iter(ctx, r) {
			if c.rows++; !yield(row, err) {
				return
			}
		}
	}
}

// However many revisions there are, and whatever gaps, a time is found by few rows.
func TestRevisionAtReadsFewRows(t *testing.T) {
	_, store := newTimes(t, -1)
	s := &counted{Store: store}
	got, err := New(s, markAt(-1)).RevisionAt(t.Context(), second(4), 1<<62)
	require.NoError(t, err)
	require.EqualValues(t, 4, got)
	require.LessOrEqual(t, s.ranges, 64)
	require.LessOrEqual(t, s.rows, s.ranges)
}

func TestTimesAreRead(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"10m": "2026-11-27T11:50:00.000Z", "0s": "2026-11-27T12:00:00.000Z", "1h30m": "2026-11-27T10:30:00.000Z",
		"2026-11-27T13:00:00+02:00": "2026-11-27T11:00:00.000Z", "2026-11-27T11:00:00.5Z": "2026-11-27T11:00:00.500Z",
	} {
		at, err := ParseTime(text, now)
		require.NoError(t, err)
		require.Equal(t, want, FormatTime(at))
	}
	for _, text := range []string{"", "7", "-10m", "yesterday", "2026-11-27"} {
		_, err := ParseTime(text, now)
		require.Error(t, err, text)
	}
}
