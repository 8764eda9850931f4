package keyspace

import (
	"fmt"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
)

// What a view that is discarded had counted may be wrong, and so may what a reading counted with its help.
func TestPurgeForgetsCounts(t *testing.T) {
	v := newView(t, Config{})
	span := coder.Span{Start: []byte("a"), End: []byte("b")}
	known := func() bool {
		_, rest, ok := v.Count(span, 1)
		return ok && rest == nil
	}
	before := v.Purges()
	if v.Remember(span, 1, 7, before); !known() {
		t.Fatal("the count is not remembered")
	}
	if v.Purge(1); known() {
		t.Error("the count is known after the purge")
	}
	if v.Remember(span, 1, 7, before); known() {
		t.Error("the count is remembered after the purge")
	}
}

// TestGrownSpanCountsTheWholeOnly: of a counted span that has become too large a part is not read,
// but counted again in several counted spans.
func TestGrownSpanCountsTheWholeOnly(t *testing.T) {
	v := newView(t, Config{SpanKeys: 2})
	whole := coder.Span{Start: []byte("0"), End: []byte("1")}
	v.AddCounts(coder.Counts{Spans: []coder.CountedSpan{{Span: whole}}})
	for i := range 100 {
		v.put(&coder.Record{Key: fmt.Appendf(nil, "0%02d", i), ModRevision: int64(i + 1)})
	}
	if n, rest, ok := v.Count(whole, 100); n != 100 || rest != nil || !ok {
		t.Fatalf("%d keys, %v, %t", n, rest, ok)
	}
	part := coder.Span{Start: []byte("050"), End: []byte("2")}
	n, rest, ok := v.Count(part, 100)
	if n != 0 || rest == nil || rest.Within || string(rest.Start) != "050" || string(rest.End) != "1" || !ok {
		t.Fatalf("%d keys, %+v, %t", n, rest, ok)
	}
	if v.AddCounts(coder.Counts{Revision: 100,
		Spans: []coder.CountedSpan{{Span: rest.Span, Keys: 50}}}); v.Stats().Counted != 1 {
		t.Error("the part was not kept")
	}
	v.check(t)
}
