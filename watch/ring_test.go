package watch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
)

// revisionOf returns n entries of revision rev with values of size bytes.
func revisionOf(rev int64, n, size int) []*entry {
	entries := make([]*entry, n)
	for i := range entries {
		entries[i] = newEntry(&Event{Record: &coder.Record{Key: fmt.Append(nil, i), Value: make([]byte, size),
			ModRevision: rev}}, true)
	}
	return entries
}

func TestTheRingKeepsTheNewestWholeRevisionsWithinItsBounds(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	r := ring{maxEvents: 20, maxBytes: 20 * (entryOverhead + 50), from: 1}
	var all []*entry
	for rev := int64(1); rev < 3000; rev++ {
		if rng.IntN(10) == 0 {
			continue // a revision without events
		}
		entries := revisionOf(rev, 1+rng.IntN(25)*rng.IntN(2), rng.IntN(100))
		all = append(all, entries...)
		r.add(entries)

		bytes := 0
		for _, e := range r.events() {
			bytes += e.size
		}
		require.Equal(t, bytes, r.bytes, "seed %d", seed)
		require.LessOrEqual(t, r.bytes, r.maxBytes, "seed %d", seed)
		require.LessOrEqual(t, len(r.events()), r.maxEvents, "seed %d", seed)
		require.LessOrEqual(t, len(r.buf), 4*r.maxEvents+25, "seed %d", seed)
		// It covers exactly the events from its oldest revision on.
		first, _ := slices.BinarySearchFunc(all, r.from, func(e *entry, rev int64) int { return int(e.revision() - rev) })
		require.Equal(t, all[first:], append([]*entry{}, r.events()...), "seed %d", seed)

		at := r.from + rng.Int64N(rev-r.from+2)
		got, max := []*entry{}, 1+rng.IntN(8)
		for next := at; next != 0; {
			var step []*entry
			step, next = r.read(next, max)
			got = append(got, step...)
			if next != 0 {
				require.Equal(t, len(step), endOfRevision(step, len(step)-1), "seed %d", seed)
				require.Less(t, step[len(step)-1].revision(), next, "seed %d", seed)
			}
		}
		require.Equal(t, append([]*entry{}, r.since(at)...), got, "seed %d", seed)
	}
}

func TestTheRingFindsVersions(t *testing.T) {
	r := ring{maxEvents: 100, maxBytes: 1 << 20, from: 1}
	r.add(revisionOf(3, 2, 0))
	r.add(revisionOf(5, 1, 0))
	r.add([]*entry{newEntry(&Event{Type: Delete, Record: &coder.Record{Key: []byte("0"), ModRevision: 6}}, true)})
	require.EqualValues(t, 3, r.find([]byte("1"), 3).ModRevision)
	require.EqualValues(t, 5, r.find([]byte("0"), 5).ModRevision)
	for _, rev := range []int64{0, 1, 4, 6} {
		require.Nil(t, r.find([]byte("0"), rev))
	}
	require.Nil(t, r.find([]byte("1"), 5))
}

func TestTheIndexFindsWhatALinearScanFinds(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	word := func() []byte {
		b := make([]byte, 1+rng.IntN(3))
		for i := range b {
			b[i] = "\x00\x01abc\xff"[rng.IntN(6)]
		}
		return b
	}
	x := newIndex()
	var all []*watcher
	for range 4000 {
		if len(all) > 0 && rng.IntN(5) < 2 {
			i := rng.IntN(len(all))
			x.remove(all[i])
			all = slices.Delete(all, i, i+1)
		} else {
			w := &watcher{key: word()}
			switch rng.IntN(4) {
			case 0:
				w.end = []byte{0}
			case 1, 2:
				if w.end = word(); string(w.end) <= string(w.key) && !coder.IsFromKey(w.end) {
					w.end = append(slices.Clone(w.key), 0xff)
				}
			}
			x.add(w)
			all = append(all, w)
		}
		key := word()
		got := map[*watcher]int{}
		x.visit(key, func(w *watcher) { got[w]++ })
		want := map[*watcher]int{}
		for _, w := range all {
			if coder.Contains(w.key, w.end, key) {
				want[w] = 1
			}
		}
		require.Equal(t, len(want), len(got), "seed %d", seed)
		for w := range want {
			require.Equal(t, 1, got[w], "seed %d", seed)
		}
	}
	for _, w := range all {
		x.remove(w)
	}
	require.Empty(t, x.keys)
	require.Zero(t, x.ranges.Len())
}
