package replica

import (
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/server/fence"
)

func TestRevisionsFoundInTheTableAreShownAfterTheTakeoverWait(t *testing.T) {
	var v visibility
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	expect := func(d time.Duration, want int64) {
		t.Helper()
		if got := v.newest(at(d)); got != want {
			t.Errorf("%s after the start: %d, want %d", d, got, want)
		}
	}
	v.find(5, at(0))
	v.find(5, at(fence.TakeoverWait/2)) // no news
	v.find(7, at(fence.TakeoverWait/2))
	expect(fence.TakeoverWait-1, 0)
	expect(fence.TakeoverWait, 5)
	v.report(6)
	expect(fence.TakeoverWait, 6)
	expect(fence.TakeoverWait*3/2, 7)
	v.report(3)
	expect(fence.TakeoverWait*3/2, 7)
	if len(v.found) != 0 {
		t.Errorf("%d revisions are kept", len(v.found))
	}
}
