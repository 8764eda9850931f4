package workload

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeysAreUniqueAndSpreadOverKinds(t *testing.T) {
	g := &generator{seed: 3, prefix: "/registry"}
	const n = 20_000
	keys, perKind, spaces := map[string]bool{}, make([]int, len(kinds)), map[string]int{}
	for i := range n {
		kind := g.kindOf(i)
		key := g.key(i, kind)
		require.False(t, keys[key], "%s twice", key)
		require.True(t, strings.HasPrefix(key, g.resourcePrefix(kind)+"ns-"), key)
		keys[key] = true
		perKind[kind]++
		spaces[key[:strings.LastIndexByte(key, '/')]]++
	}
	for i, k := range kinds {
		require.InDelta(t, k.share*n/100, perKind[i], n/100, "objects of %s", k.resource)
	}
	require.Greater(t, len(spaces), 200, "namespaces")
}

func TestSizesAreThoseOfAClusterAndFollowTheSeed(t *testing.T) {
	g, same, other := &generator{seed: 3}, &generator{seed: 3}, &generator{seed: 4}
	var total, differ, above int
	const n = 5000
	for i := range n {
		kind := g.kindOf(i)
		v := g.value(i, kind, 0)
		if i == hugeAt {
			require.Len(t, v, huge)
			continue
		}
		require.True(t, len(v) >= smallest && len(v) <= largest, "%d bytes", len(v))
		require.Equal(t, v, same.value(i, kind, 0))
		require.NotEqual(t, v, g.value(i, kind, 1), "two writes of one object")
		if other.key(i, kind) != g.key(i, kind) {
			differ++
		}
		if len(v) > 20<<10 {
			above++
		}
		total += len(v)
	}
	require.InDelta(t, 3500, total/n, 1000, "mean size")
	require.Greater(t, differ, n*9/10, "keys that another seed changes")
	require.Greater(t, above, 10, "large objects")
}

func TestFixedSizeIsKept(t *testing.T) {
	g := &generator{seed: 1, size: minValue}
	a, b := g.value(24, 0, 0), g.value(24, 0, 1)
	require.Len(t, a, minValue)
	require.NotEqual(t, a, b)
	require.NotEqual(t, a, g.value(25, 0, 0))
}
