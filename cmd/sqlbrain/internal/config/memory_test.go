package config_test

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
	"github.com/sqlbrain/sqlbrain/server/replica"
)

// caches are the sizes of caches, in bytes and entries.
type caches struct{ objects, entries, ring int }

// fit loads a command line in a container with so much memory.
func fit(t *testing.T, commandLine string, container int64) (config.Memory, caches) {
	t.Helper()
	s := config.New()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	s.Bind(fs)
	require.NoError(t, fs.Parse(strings.Fields(commandLine)))
	require.NoError(t, s.Load(nil))
	m := s.FitMemory(container)
	return m, caches{s.Replica.RecordCache, s.Replica.Write.IndexCache, s.Replica.Watch.RingBytes}
}

func standard() caches {
	d := replica.DefaultConfig()
	return caches{d.RecordCache, d.Write.IndexCache, d.Watch.RingBytes}
}

func TestCachesWithoutALimit(t *testing.T) {
	m, c := fit(t, "", 0)
	require.Equal(t, config.Memory{Aim: config.DefaultMemory, Pages: 8 << 20}, m)
	require.Equal(t, standard(), c)
	m, _ = fit(t, "--datastore=mysql://u@h/d", 0)
	require.Zero(t, m.Pages, "only SQLite is in this process")
}

// TestCachesFollowTheMemory: the flag goes before the container, of whose memory a tenth is left.
func TestCachesFollowTheMemory(t *testing.T) {
	const gib = 1 << 30
	m, large := fit(t, "--memory-limit-bytes=1073741824", 0)
	require.Equal(t, []int64{gib, gib}, []int64{m.Aim, m.Limit})
	require.Equal(t, 15*standard().objects, large.objects-large.objects%standard().objects,
		"what the program takes is not scaled")
	require.Equal(t, standard().objects/standard().ring, large.objects/large.ring)
	require.Equal(t, standard().objects/standard().entries, large.objects/large.entries)
	m, c := fit(t, "", gib/9*10)
	require.InDelta(t, gib, m.Limit, 10)
	require.InDelta(t, large.objects, c.objects, 100)
	_, c = fit(t, "--memory-limit-bytes=1073741824", 512<<20)
	require.Equal(t, large, c)

	_, c = fit(t, "", 64*gib)
	require.Equal(t, 16*standard().ring, c.ring, "recent events are enough at some point")
	require.Greater(t, c.objects, 10*gib)

	m, small := fit(t, "", 32<<20)
	require.Equal(t, []int64{config.LeastMemory, config.LeastMemory}, []int64{m.Aim, m.Limit},
		"a limit at which it cannot work")
	require.Less(t, small.objects, standard().objects)
	require.Positive(t, small.objects)
	require.Positive(t, small.ring)
	require.Positive(t, small.entries)
	_, c = fit(t, "--memory-limit-bytes=67108864", 0)
	require.Equal(t, small, c)
}

// TestQueuesFollowTheMemory: clients that do not read take less in a small container.
func TestQueuesFollowTheMemory(t *testing.T) {
	queued := func(container int64) int {
		s := config.New()
		require.NoError(t, s.Load(nil))
		s.FitMemory(container)
		require.Equal(t, 4*s.Replica.Watch.QueuedBytes, s.Replica.Write.QueueBytes)
		require.Equal(t, s.Replica.Watch.QueuedBytes, s.Server.AnswerBytes)
		require.Equal(t, s.Replica.Watch.QueuedBytes, s.Server.RequestBytes)
		return s.Replica.Watch.QueuedBytes
	}
	require.Equal(t, replica.DefaultConfig().Watch.QueuedBytes, queued(0))
	require.Equal(t, replica.DefaultConfig().Watch.QueuedBytes/4, queued(1))
	require.Equal(t, replica.DefaultConfig().Watch.QueuedBytes*16, queued(1<<40))
}

// TestGivenSizesOfCachesStay: the other caches share what they leave.
func TestGivenSizesOfCachesStay(t *testing.T) {
	_, c := fit(t, "--object-cache-bytes=0 --index-cache-entries=7 --watch-ring-bytes=9", 1<<30)
	require.Equal(t, caches{0, 7, 9}, c)
	m, c := fit(t, "--memory-limit-bytes=1073741824 --object-cache-bytes=500000000", 0)
	require.Equal(t, 500000000, c.objects)
	_, rest := fit(t, "--memory-limit-bytes=573741824", 0)
	require.Equal(t, rest.ring, c.ring)
	require.EqualValues(t, 1<<30, m.Limit)
	_, c = fit(t, "--object-cache-bytes=500000000", 0)
	_, least := fit(t, "--memory-limit-bytes=67108864", 0)
	require.Equal(t, least.ring, c.ring, "more than the default memory is given away")
}
