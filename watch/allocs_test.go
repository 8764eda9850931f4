package watch

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
)

// TestPublishDoesNotAllocateForUnmatchedWatchers bounds the allocations of an
// event that nobody wants: they do not grow with the watchers there are.
func TestPublishDoesNotAllocateForUnmatchedWatchers(t *testing.T) {
	require.LessOrEqual(t, publishAllocs(t, 0, ""), 4.0)
	few := publishAllocs(t, 10, "/registry/others/")
	require.LessOrEqual(t, few, 9.0) // looking among prefixes takes some
	require.LessOrEqual(t, publishAllocs(t, 2000, "/registry/others/"), few)
}

// TestPublishingAllocatesLittleForEachWatcher bounds those of an event that
// watchers want, and which waits in their queues.
func TestPublishingAllocatesLittleForEachWatcher(t *testing.T) {
	const watchers = 200
	alone := publishAllocs(t, 0, "")
	require.LessOrEqual(t, publishAllocs(t, watchers, "/registry/"), alone+2*watchers)
}

// publishAllocs returns how often Publish allocates for an event below /registry/pods/
// with so many watchers of a prefix.
func publishAllocs(t *testing.T, watchers int, prefix string) float64 {
	t.Helper()
	hub := NewHub(newHistory(), 1, -1, completed(Config{QueueEvents: 1 << 20}))
	defer hub.Close()
	s := hub.NewStream()
	for i := range watchers {
		key := []byte(prefix)
		if prefix != "/registry/" {
			key = fmt.Appendf(key, "%06d/", i)
		}
		s.Create(Permitted, CreateRequest{Key: key, End: append(key[:len(key)-1:len(key)-1], '0')})
	}
	for range watchers {
		_, err := s.Next(context.Background())
		require.NoError(t, err)
	}
	// Made before, so that only Publish is counted.
	const runs = 100
	events := make([][]*Event, runs+1) // AllocsPerRun warms up once
	for i := range events {
		events[i] = []*Event{{Record: &coder.Record{Key: []byte("/registry/pods/ns/x"), Value: []byte("v"),
			ModRevision: int64(2 + i), Version: 2}}}
	}
	i := 0
	return testing.AllocsPerRun(runs, func() {
		hub.Publish(events[i], events[i][0].Record.ModRevision, func() {})
		i++
	})
}
