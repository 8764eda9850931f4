package simulation

import (
	"strings"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/integration/internal/history"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// TestTheTableIsJudged compares tables with the account of revision 2, which puts the keys a and b.
func TestTheTableIsJudged(t *testing.T) {
	account := []history.Revision{{Number: 2, Events: []history.Event{
		{KV: history.KV{Key: "a", CreateRevision: 2, ModRevision: 2, Version: 1}},
		{KV: history.KV{Key: "b", CreateRevision: 2, ModRevision: 2, Version: 1}},
	}}}
	changes := func(subs ...int32) []coder.Change {
		return []coder.Change{{Revision: 2, Sub: subs[0], Key: []byte("a")}, {Revision: 2, Sub: subs[1], Key: []byte("b")}}
	}
	index := func(b sqlstore.BatchWrite, key string, rev int64) {
		b.Put(coder.EncodeIndexKey([]byte(key)), coder.EncodeIndex(coder.Index{ModRevision: rev, CreateRevision: 2,
			Version: 1}))
	}
	version := func(b sqlstore.BatchWrite, key string, rev int64) {
		b.Put(coder.EncodeVersionKey([]byte(key), rev), []byte{})
	}
	both := func(b sqlstore.BatchWrite) {
		for _, key := range []string{"a", "b"} {
			index(b, key, 2)
			version(b, key, 2)
		}
	}
	log := func(b sqlstore.BatchWrite, changes []coder.Change) {
		b.Put(coder.EncodeLogKey(2, 1), coder.EncodeLog(time.Time{}, changes)[0])
	}
	earlier := func(b sqlstore.BatchWrite) {
		for rev, ms := range map[int64]int64{2: 7, 3: 6} {
			b.Put(coder.EncodeLogKey(rev, 1), coder.EncodeLog(time.UnixMilli(ms), changes(0, 1))[0])
		}
	}
	for _, c := range []struct {
		name, want string
		rows       func(sqlstore.BatchWrite)
	}{
		{"a wrong count", "the count of bytes", func(b sqlstore.BatchWrite) { both(b); b.Put(coder.RemovedKey(), coder.EncodeInt64(50)) }},
		{"right", "", func(b sqlstore.BatchWrite) { log(b, changes(0, 1)); both(b) }},
		{"without a compacted log", "", both},
		{"no order", "the log in the table", func(b sqlstore.BatchWrite) { log(b, changes(0, 0)); both(b) }},
		{"a time that goes back", "the log in the table", func(b sqlstore.BatchWrite) { earlier(b); both(b) }},
		{"a change less", "the log in the table", func(b sqlstore.BatchWrite) { log(b, changes(0, 1)[:1]); both(b) }},
		{"another revision", "the index in the table", func(b sqlstore.BatchWrite) { index(b, "a", 3); index(b, "b", 2) }},
		{"a key less", `"b" has no row`, func(b sqlstore.BatchWrite) { index(b, "a", 2) }},
		{"a key more", "the index in the table", func(b sqlstore.BatchWrite) { both(b); index(b, "c", 2) }},
		{"a version less", `the versions in the table: "b"`, func(b sqlstore.BatchWrite) { index(b, "a", 2); index(b, "b", 2); version(b, "a", 2) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(Plan{}, memstore.New())
			b := w.database.store.BeginBatchWrite()
			c.rows(b)
			if err := b.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			lo, hi := coder.CountedBounds()
			m, err := w.database.store.Measure(t.Context(), sqlstore.MeasureQuery{Start: lo, End: hi})
			if err != nil {
				t.Fatal(err)
			}
			b = w.database.store.BeginBatchWrite()
			b.Put(coder.FenceKey(), coder.EncodeFenceToken(coder.FenceToken{Sequence: 1, Bytes: m.Bytes}))
			if err := b.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.judgeTable(account)
			if got := strings.Join(w.violations, "\n"); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

// TestTheMarkIsJudged acknowledges compactions that the table has, and has not.
func TestTheMarkIsJudged(t *testing.T) {
	w := newWorld(Plan{}, memstore.New())
	b := w.database.store.BeginBatchWrite()
	b.Put(coder.CompactKey(), coder.EncodeInt64(7))
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.judgeMark(7); len(w.violations) > 0 {
		t.Error(w.violations)
	}
	if w.judgeMark(8); len(w.violations) != 1 {
		t.Errorf("found %v", w.violations)
	}
}
