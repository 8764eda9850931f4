package console

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
)

func lines(d *diffBody) (out []string) {
	for _, h := range d.Hunks {
		for _, l := range h.Lines {
			out = append(out, l.Op+l.Text)
		}
	}
	return out
}

func TestDiff(t *testing.T) {
	require.Equal(t, []string{" a", "-b", "+c"}, lines(diff("a\nb", "a\nc\n")), "a missing last newline is no change")
	require.Empty(t, lines(diff("same", "same")))
	require.Equal(t, []string{"+a"}, lines(diff("", "a")))
	require.Equal(t, []string{"-a"}, lines(diff("a", "")))
	long := strings.Repeat("x\n", diffBytes/2+1)
	require.Equal(t, tooLong, diff(long, "").Note)
	require.Equal(t, tooLong, diff("", strings.Repeat("x\n", diffTextLines+1)).Note)
	many := diff("", strings.Repeat("x\n", diffLines+1))
	require.Len(t, lines(many), diffLines)
	require.Equal(t, "only the first lines are shown", many.Note)
	require.Len(t, diff(strings.Repeat("a\n", 20)+"b\n"+strings.Repeat("a\n", 20)+"b\n",
		strings.Repeat("a\n", 20)+"c\n"+strings.Repeat("a\n", 20)+"c\n").Hunks, 2)
}

func TestHistoryComparesEachVersionWithTheOneBefore(t *testing.T) {
	version := func(rev, version int64, value string) *coder.Record {
		return &coder.Record{ModRevision: rev, Version: version, Value: []byte(value)}
	}
	deleted := &coder.Record{ModRevision: 4, Tombstone: true}
	all := []*coder.Record{version(6, 2, "d"), version(5, 1, "c"), deleted, version(3, 2, "b"), version(2, 1, "a")}

	history := func(res *read.KeyHistory, limit int) *historyBody {
		t.Helper()
		got, err := testViewer.history(t.Context(), res, limit)
		require.NoError(t, err)
		return got
	}
	got := history(&read.KeyHistory{Revision: 9, CompactRevision: -1, Versions: all}, 10)
	require.True(t, got.Complete)
	require.Zero(t, got.Next)
	var text []string
	for _, v := range got.Versions {
		text = append(text, v.Change+" "+strings.Join(lines(v.Diff), ""))
	}
	require.Equal(t, []string{"changed -c+d", "created +c", "deleted -b", "changed -a+b", "created +a"}, text)

	page := history(&read.KeyHistory{Versions: all[:3], More: true}, 2)
	require.Len(t, page.Versions, 2, "the one more is for comparing")
	require.EqualValues(t, 5, page.Next)
	require.False(t, page.Complete)

	short := history(&read.KeyHistory{Versions: all[:3], More: true}, 10)
	require.Len(t, short.Versions, 2, "the bytes of a page were used up, and the last version has nothing to be "+
		"compared with")
	require.EqualValues(t, 5, short.Next)

	compacted := history(&read.KeyHistory{Versions: all[3:4], CompactRevision: 3}, 2)
	require.Nil(t, compacted.Versions[0].Diff, "what it was before is compacted")
	require.False(t, compacted.Complete)
	require.Zero(t, compacted.Next)

	large := history(&read.KeyHistory{Versions: all[:1], More: true}, 10)
	require.EqualValues(t, 6, large.Next, "one version is shown even if its neighbour was too much")
	require.Equal(t, tooLong, large.Versions[0].Diff.Note)
}
