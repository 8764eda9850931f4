package backend

import (
	"testing"
	"time"
)

func TestWhatIsFoundInTheTableIsShownLater(t *testing.T) {
	var s sightings
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	expect := func(d time.Duration, want int64) {
		t.Helper()
		if got := s.newest(at(d)); got != want {
			t.Errorf("%s after the start: %d, want %d", d, got, want)
		}
	}
	s.add(5, at(0))
	s.add(5, at(takeoverWait/2)) // no news
	s.add(7, at(takeoverWait/2))
	expect(takeoverWait-1, 0)
	expect(takeoverWait, 5)
	s.raise(6)
	expect(takeoverWait, 6)
	expect(takeoverWait*3/2, 7)
	s.raise(3)
	expect(takeoverWait*3/2, 7)
	if len(s.found) != 0 {
		t.Errorf("%d sightings are kept", len(s.found))
	}
}
