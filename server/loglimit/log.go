// Package loglimit bounds the log lines that other processes can cause.
package loglimit

import (
	"cmp"
	"log/slog"
	"sync"
	"time"
)

// Log writes at most one line per interval, with the number of lines that were left out before it. Its zero value is
// ready for use, by several goroutines.
type Log struct {
	// Interval is the shortest time between two lines; 0: a second.
	Interval time.Duration

	mu      sync.Mutex
	last    time.Time
	dropped int
}

// Warn writes a line to log, unless it wrote one within the last interval.
func (l *Log) Warn(log *slog.Logger, message string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.last) < cmp.Or(l.Interval, time.Second) {
		l.dropped++
		return
	}
	log.Warn(message, append(args, "not_logged_before", l.dropped)...)
	l.last, l.dropped = now, 0
}
