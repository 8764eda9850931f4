package audit

import "time"

const (
	// limitRate is how many events a second of one kind are recorded that clients can cause
	// without permission. limitBurst is how many of them at once.
	limitRate  = 10
	limitBurst = 200
	// suppressedInterval is the least time between two lines that count suppressed events.
	suppressedInterval = 10 * time.Second
)

// limit bounds the rate of events of one kind, and counts the others. Log.mu guards it.
type limit struct {
	tokens   float64
	at       time.Time // when tokens was right
	missing  int64     // events suppressed since the last line about them
	since    time.Time // when the first of them was
	reported time.Time
}

// admits reports whether an event may be recorded at now.
func (l *limit) admits(now time.Time) bool {
	if l.at.IsZero() {
		l.tokens = limitBurst
	} else if passed := now.Sub(l.at); passed > 0 {
		l.tokens = min(limitBurst, l.tokens+limitRate*passed.Seconds())
	}
	l.at = now
	if l.tokens < 1 {
		l.suppress(now)
		return false
	}
	l.tokens--
	return true
}

func (l *limit) suppress(now time.Time) {
	if l.missing == 0 {
		l.since = now
	}
	l.missing++
}

// due returns how many events a line has to count at now, and since when; 0 if there is no
// line to write yet.
func (l *limit) due(now time.Time, last bool) (missing int64, since time.Time) {
	if l.missing == 0 || !last && now.Sub(l.reported) < suppressedInterval {
		return 0, since
	}
	missing, since = l.missing, l.since
	l.missing, l.reported = 0, now
	return missing, since
}
