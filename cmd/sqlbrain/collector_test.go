package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestHeapGrowthIsBounded(t *testing.T) {
	for _, c := range []struct{ live, aim, want int }{
		{0, 1024, 400}, {1, 1024, 400}, {32, 1024, 400}, {48, 1024, 270}, {64, 1024, 200}, {128, 1024, 100}, {192, 1024, 70}, {256, 1024, 50}, {1 << 20, 1024, 50},
		{0, 64, 400}, {10, 64, 400}, {16, 64, 300}, {32, 64, 100}, {40, 64, 60}, {60, 64, 50}, {1000, 64, 50},
	} {
		if got := growth(uint64(c.live)<<20, int64(c.aim)<<20); got != c.want {
			t.Errorf("a heap of %d MiB may grow by %d%% towards %d MiB, want %d%%", c.live, got, c.aim, c.want)
		}
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
	if got := percent(); got != before {
		t.Fatalf("restored to %d%%, it was %d%%", got, before)
	}
	runtime.GC()
	runtime.GC()
	if got := percent(); got != before {
		t.Fatalf("%d%% some collections later, want %d%%", got, before)
	}
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
			if got := percent(); got != before {
				t.Fatalf("set from %d%% to %d%%", before, got)
			}
		})
	}
}

// TestMemoryLimitOfTheEnvironmentIsKept also if the container, or a flag, has a limit.
func TestMemoryLimitOfTheEnvironmentIsKept(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "150MiB")
	before := debug.SetMemoryLimit(-1)
	restore := tuneCollector(config.Memory{Aim: 512 << 20, Limit: 512 << 20})
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("the limit was set from %d to %d", before, got)
	}
	restore()
	if got := debug.SetMemoryLimit(before); got != before {
		t.Errorf("the limit is %d afterwards, it was %d", got, before)
	}
}

func TestMemoryLimitIsSetAndRestored(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	restore := tuneCollector(config.Memory{Aim: 512 << 20, Limit: 512 << 20, Pages: 64 << 20})
	if got := debug.SetMemoryLimit(-1); got != 420<<20 {
		t.Fatalf("Go may have %d MiB, want what the pages of SQLite and the program leave", got>>20)
	}
	restore()
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Fatalf("restored to %d, it was %d", got, before)
	}
	restore = tuneCollector(config.Memory{Aim: 512 << 20, Pages: 64 << 20})
	defer restore()
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Fatalf("%d without a limit, want %d", got, before)
	}
}
