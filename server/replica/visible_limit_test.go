package replica

import (
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/server/fence"
)

func TestRevisionsInTheTableMayBeVisibleAfterTheTakeoverWait(t *testing.T) {
	var v visibleLimit
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	expect := func(d time.Duration, want int64) {
		t.Helper()
		if got := v.revision(at(d)); got != want {
			t.Errorf("%s after the start: %d, want %d", d, got, want)
		}
	}
	v.observe(5, at(0))
	v.observe(5, at(fence.TakeoverWait/2)) // no news
	v.observe(7, at(fence.TakeoverWait/2))
	expect(fence.TakeoverWait-1, 0)
	expect(fence.TakeoverWait, 5)
	v.raise(6)
	expect(fence.TakeoverWait, 6)
	expect(fence.TakeoverWait*3/2, 7)
	v.raise(3)
	expect(fence.TakeoverWait*3/2, 7)
	if len(v.pending) != 0 {
		t.Errorf("%d revisions are kept", len(v.pending))
	}
}
