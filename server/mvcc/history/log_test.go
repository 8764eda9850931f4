package history

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
	"github.com/sqlbrain/sqlbrain/watch"
)

// newTable returns a store whose revisions 2, 3 and so on have the keys of one element of
// commits each, and were committed so many seconds after 1970. A key that begins with "-" is deleted.
func newTable(t *testing.T, commits ...[]string) sqlstore.Store {
	s := memstore.New()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	last := make(map[string]int64)
	for i, keys := range commits {
		rev := int64(2 + i)
		batch := s.BeginBatchWrite()
		var changes []coder.Change
		for sub, key := range keys {
			c := coder.Change{Revision: rev, Sub: int32(sub), Key: []byte(key)}
			if key[0] == '-' {
				c.Key, c.Tombstone = c.Key[1:], true
			}
			c.PrevRevision = last[string(c.Key)]
			last[string(c.Key)] = rev
			changes = append(changes, c)
			batch.Put(coder.EncodeVersionKey(c.Key, rev), coder.EncodeVersion(&coder.Record{
				Key: c.Key, ModRevision: rev, CreateRevision: rev, Version: 1, Sub: c.Sub, Tombstone: c.Tombstone,
				Value: fmt.Append(nil, rev),
			}))
		}
		batch.Put(coder.EncodeLogKey(rev, 1), coder.EncodeLog(time.UnixMilli(1000*rev), changes)[0])
		if err := batch.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func markAt(rev int64) func(context.Context) (int64, error) {
	return func(context.Context) (int64, error) { return rev, nil }
}

func describe(events []*watch.Event) (s string) {
	for _, e := range events {
		if e.Type == watch.Delete {
			s += fmt.Sprintf("%d-%s<%d ", e.Record.ModRevision, e.Record.Key, e.PrevRevision)
		} else {
			s += fmt.Sprintf("%d+%s=%s<%d ", e.Record.ModRevision, e.Record.Key, e.Record.Value, e.PrevRevision)
		}
	}
	return s
}

func TestChangesAreThoseOfTheRange(t *testing.T) {
	l := New(newTable(t, []string{"a", "b"}, []string{"-a"}, []string{"c"}, []string{"a"}, []string{"b"}), markAt(-1))
	for _, tc := range []struct {
		key, end string
		from, to int64
		want     string
	}{
		{"a", "", 2, 6, "2+a=2<0 3-a<2 5+a=5<3 "},
		{"\x00", "\x00", 3, 5, "3-a<2 4+c=4<0 5+a=5<3 "},
		{"b", "c", 2, 2, "2+b=2<0 "},
		{"x", "", 2, 6, ""},
	} {
		events, next, err := l.Changes(t.Context(), []byte(tc.key), []byte(tc.end), tc.from, tc.to, UsualBytes)
		if err != nil {
			t.Fatal(err)
		}
		if got := describe(events); got != tc.want || next != tc.to+1 {
			t.Errorf("%q to %q from %d to %d: %s, and the next revision is %d; want %s", tc.key, tc.end, tc.from, tc.to, got,
				next, tc.want)
		}
	}
}

func TestChangesAreWholeRevisions(t *testing.T) {
	large := make([]string, maxChanges+1)
	for i := range large {
		large[i] = fmt.Sprintf("k%05d", i)
	}
	l := New(newTable(t, large[:1], large, large[:1]), markAt(-1))
	events, next, err := l.Changes(t.Context(), []byte{0}, []byte{0}, 2, 4, UsualBytes)
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != 1+len(large) || next != 4 {
		t.Errorf("%d events, and the next revision is %d; want those of revisions 2 and 3", len(events), next)
	}
}

// A revision with more bytes, and more keys, than one call reads at a time is not divided.
func TestLargeRevisionIsNotDivided(t *testing.T) {
	large := make([]string, 3*valuesAtATime)
	for i := range large {
		large[i] = fmt.Sprintf("k%05d", i)
	}
	s := newTable(t, large, large[:1])
	batch := s.BeginBatchWrite()
	for _, key := range large[:valuesAtATime] {
		batch.Put(coder.EncodeVersionKey([]byte(key), 2), coder.EncodeVersion(&coder.Record{
			Key: []byte(key), ModRevision: 2, CreateRevision: 2, Version: 1, Value: make([]byte, UsualBytes/valuesAtATime+1),
		}))
	}
	if err := batch.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	events, next, err := New(s, markAt(-1)).Changes(t.Context(), []byte{0}, []byte{0}, 2, 3, UsualBytes)
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != len(large) || next != 3 {
		t.Errorf("%d events, and the next revision is %d; want the %d of revision 2", len(events), next, len(large))
	}
}

// Revisions that do not begin where a read of values begins are bounded as well.
func TestValuesAreBoundedWhereverRevisionsBegin(t *testing.T) {
	for _, tc := range []struct{ revisions, size, atMost int }{
		{300, 64 << 10, UsualBytes},
		{300, 64 << 10, 64 << 10},
		{50, 1 << 20, UsualBytes}, // one statement must not read a hundred of them
		{50, 1 << 20, 1},
		{1000, 100, 64 << 10},
	} {
		commits := [][]string{{"first"}}
		for i := range tc.revisions {
			commits = append(commits, []string{fmt.Sprintf("a%04d", i), fmt.Sprintf("b%04d", i)})
		}
		s := newTable(t, commits...)
		batch := s.BeginBatchWrite()
		for i, keys := range commits {
			for sub, key := range keys {
				rev := int64(2 + i)
				batch.Put(coder.EncodeVersionKey([]byte(key), rev), coder.EncodeVersion(&coder.Record{
					Key: []byte(key), ModRevision: rev, CreateRevision: rev, Version: 1, Sub: int32(sub), Value: make([]byte, tc.size),
				}))
			}
		}
		if err := batch.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		events, next, err := New(s, markAt(-1)).Changes(t.Context(), []byte{0}, []byte{0}, 2, 2+int64(tc.revisions),
			tc.atMost)
		if err != nil {
			t.Fatal(err)
		}
		each := tc.size + overhead
		if n := len(events); n*each < tc.atMost/2 || n*each > max(2*tc.atMost, 9*each) {
			t.Errorf("%d events of %d bytes, want about %d bytes", n, tc.size, tc.atMost)
		}
		if last := events[len(events)-1]; last.Record.ModRevision != next-1 || last.Record.ModRevision > 2 &&
			last.Record.Key[0] != 'b' {
			t.Errorf("the last event is of %s at revision %d, the next revision is %d", last.Record.Key,
				last.Record.ModRevision, next)
		}
	}
}

// A log row may have a megabyte, and a watcher that lags keeps thousands of events.
func TestEventsDoNotKeepTheLogRows(t *testing.T) {
	s := storetest.OverwriteRows(newTable(t, []string{"a", "b"}, []string{"-a", "b"}))
	all := []byte{0}
	events, _, err := New(s, markAt(-1)).Changes(t.Context(), all, all, 2, 3, UsualBytes)
	if got, want := describe(events), "2+a=2<0 2+b=2<0 3-a<2 3+b=3<2 "; err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

func TestCompactedHistoryIsRefused(t *testing.T) {
	s := newTable(t, []string{"a"}, []string{"a"}, []string{"a"})
	all := []byte{0}
	compacted := func(mark int64, from int64) bool {
		t.Helper()
		_, _, err := New(s, markAt(mark)).Changes(t.Context(), all, all, from, 4, UsualBytes)
		var refused *watch.CompactedError
		if err != nil && (!errors.As(err, &refused) || refused.Revision != mark) {
			t.Fatal(err)
		}
		return err != nil
	}
	if compacted(3, 3) {
		t.Error("the history of the compact revision is refused")
	}
	if !compacted(3, 2) {
		t.Error("history below the compact revision is returned")
	}
	// Compaction removes a version after its log row was read.
	batch := s.BeginBatchWrite()
	batch.Del(coder.EncodeVersionKey([]byte("a"), 2))
	if err := batch.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !compacted(3, 2) {
		t.Error("a part of the events is returned")
	}
	if _, _, err := New(s, markAt(-1)).Changes(t.Context(), all, all, 2, 4, UsualBytes); err == nil {
		t.Error("a missing version is not noticed")
	}
}
