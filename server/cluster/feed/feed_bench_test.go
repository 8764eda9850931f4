package feed

import (
	"fmt"
	"testing"

	"github.com/sqlbrain/sqlbrain/watch"
)

// BenchmarkFeed measures one event's way from the leader's hub to a follower, over a
// connection of this machine.
func BenchmarkFeed(b *testing.B) {
	for _, c := range []struct{ events, bytes int }{{1, 100}, {100, 100}, {100, 1000}} {
		b.Run(fmt.Sprintf("events=%d/bytes=%d", c.events, c.bytes),
			func(b *testing.B) { benchmarkFeed(b, c.events, c.bytes) })
	}
}

// benchmarkFeed commits batches of events of some bytes, and waits for each at the follower.
func benchmarkFeed(b *testing.B, events, bytes int) {
	l := newLeader(b, watch.Config{})
	f := follow(b, newClient(b, serve(b, newService(l), l)), 1)
	batch := make([]*watch.Event, events)
	rev := int64(0)
	b.ReportAllocs()
	for n := 0; n < b.N; n += events {
		for i := range batch {
			rev++
			batch[i] = put(rev, 0, bytes)
		}
		l.commit(batch...)
		until(b, f, rev)
		l.history.events = nil
	}
}
