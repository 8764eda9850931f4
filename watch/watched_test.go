package watch

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWatchedListsRanges(t *testing.T) {
	b := newBed(t, Config{QueueEvents: 2})
	s := b.stream()
	for range 3 {
		s.Create(Permitted, CreateRequest{Key: []byte("a"), End: []byte("b")})
	}
	for i := range 5 {
		s.Create(Permitted, CreateRequest{Key: fmt.Appendf(nil, "k%d", i)})
	}
	s.Create(Permitted, CreateRequest{Key: []byte{0}, End: []byte{0}})
	ranges, count := b.hub.Watched(2)
	require.Equal(t, 7, count)
	require.Equal(t, []Watched{{Key: []byte("a"), End: []byte("b"), Watchers: 3},
		{Key: []byte{0}, End: []byte{0}, Watchers: 1}}, ranges)

	for range 4 { // more than a queue has room for, and nobody reads
		b.put("a")
	}
	ranges, count = b.hub.Watched(1)
	require.Equal(t, 7, count)
	require.Equal(t, []Watched{{Key: []byte("a"), End: []byte("b"), Watchers: 3, Lagging: 3}}, ranges)
	s.Close()
	_, count = b.hub.Watched(2)
	require.Zero(t, count)
}
