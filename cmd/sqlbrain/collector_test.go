package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestHeapGrowthIsBounded(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 400, 1 << 20: 400, 32 << 20: 400, 48 << 20: 270, 64 << 20: 200, 128 << 20: 100, 192 << 20: 70, 256 << 20: 50, 1 << 40: 50,
	} {
		if got := growth(live); got != want {
			t.Errorf("a heap of %d MiB may grow by %d%%, want %d%%", live>>20, got, want)
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
	restore := relaxCollector()
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
			restore := relaxCollector()
			defer restore()
			if got := percent(); got != before {
				t.Fatalf("set from %d%% to %d%%", before, got)
			}
		})
	}
}

func TestMemoryLimitIsSetAndRestored(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	restore := tuneCollector(goMemory(512<<20, 64<<20))
	if got := debug.SetMemoryLimit(-1); got != 400<<20 {
		t.Fatalf("Go may have %d MiB, want what the pages of SQLite and the program leave", got>>20)
	}
	restore()
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Fatalf("restored to %d, it was %d", got, before)
	}
	tuneCollector(goMemory(0, 64<<20))()
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Fatalf("%d without a limit, want %d", got, before)
	}
}
