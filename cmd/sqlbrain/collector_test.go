package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestHeapGrowthIsBounded(t *testing.T) {
	for _, c := range []struct{ live, aim, want int }{
		{0, 1024, 400}, {1, 1024, 400}, {32, 1024, 400}, {48, 1024, 270}, {64, 1024, 200}, {128, 1024, 100}, {192, 1024, 70}, {256, 1024, 50}, {1 << 20, 1024, 50},
		{0, 64, 400}, {10, 64, 400}, {16, 64, 300}, {32, 64, 100}, {40, 64, 60}, {60, 64, 50}, {1000, 64, 50},
	} {
		require.Equal(t, c.want, growth(uint64(c.live)<<20, int64(c.aim)<<20), "%+v", c)
	}
}

// percent is what the collector is set to now.
func percent() uint64 {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func TestCollectorFollowsTheHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	before := percent()
	defer debug.SetGCPercent(int(before))
	restore := relaxCollector(1 << 30)
	await := func(what string, ok func(uint64) bool) {
		t.Helper()
		eventually.True(t, what, func() bool {
			runtime.GC()
			return ok(percent())
		})
	}
	await("a small heap", func(p uint64) bool { return p > 200 })
	large := make([]byte, 2*garbageBytes)
	await("a large heap", func(p uint64) bool { return p == 100*minGrowth })
	runtime.KeepAlive(large)
	large = nil
	await("a small heap again", func(p uint64) bool { return p > 200 })
	restore()
	require.Equal(t, before, percent(), "restored")
	runtime.GC()
	runtime.GC()
	require.Equal(t, before, percent(), "some collections later")
}

func TestCollectorSettingsOfTheEnvironmentAreKept(t *testing.T) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOGC", "")
			t.Setenv("GOMEMLIMIT", "")
			t.Setenv(name, "150")
			before := percent()
			restore := relaxCollector(1 << 30)
			defer restore()
			require.Equal(t, before, percent())
		})
	}
}

// TestMemoryLimitOfTheEnvironmentIsKept also if the container, or a flag, has a limit.
func TestMemoryLimitOfTheEnvironmentIsKept(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "150MiB")
	before := debug.SetMemoryLimit(-1)
	restore := tuneCollector(config.Memory{Aim: 512 << 20, Limit: 512 << 20})
	require.Equal(t, before, debug.SetMemoryLimit(-1))
	restore()
	require.Equal(t, before, debug.SetMemoryLimit(before), "afterwards")
}

func TestMemoryLimitIsSetAndRestored(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	restore := tuneCollector(config.Memory{Aim: 512 << 20, Limit: 512 << 20, Pages: 64 << 20})
	require.EqualValues(t, 420<<20, debug.SetMemoryLimit(-1), "what the pages of SQLite and the program leave")
	restore()
	require.Equal(t, before, debug.SetMemoryLimit(-1), "restored")
	restore = tuneCollector(config.Memory{Aim: 512 << 20, Pages: 64 << 20})
	defer restore()
	require.Equal(t, before, debug.SetMemoryLimit(-1), "without a limit")
}
