package main

import (
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
)

// Go collects garbage whenever the heap has doubled. The live heap of a server is small, a few
// tens of MiB, so by default it would collect many times a second under load, which takes a sixth
// of its CPU. Here the heap may grow, between collections, to the memory that the process aims at; but
// by at most garbageBytes and maxGrowth times its size, and, because collections of a large heap are expensive, by at
// least minGrowth times. GOGC and GOMEMLIMIT in the environment override this.
const (
	garbageBytes = 128 << 20
	maxGrowth    = 4.0
	minGrowth    = 0.5
)

// outsideGo is the resident memory outside Go's heap: the program's code, and stacks of
// threads.
const outsideGo = 28 << 20

// dense is the part of the heap's memory that holds objects. The rest is free space between them.
const dense = 0.8

// tuneCollector configures Go's garbage collector as above until restore is called. If m has a
// limit, Go also collects more often as it approaches that.
func tuneCollector(m config.Memory) (restore func()) {
	relax := relaxCollector(int64(dense * float64(m.Aim-outsideGo-m.Pages)))
	if m.Limit == 0 || os.Getenv("GOMEMLIMIT") != "" {
		return relax
	}
	before := debug.SetMemoryLimit(max(m.Limit-outsideGo-m.Pages, 1))
	return func() {
		debug.SetMemoryLimit(before)
		relax()
	}
}

// containerMemory returns how many bytes of memory the control group of the process may use, 0 if
// that has no limit or is not known.
func containerMemory() int64 {
	limit, err := memlimit.FromCgroup()
	if err != nil || limit > math.MaxInt64 {
		return 0
	}
	return int64(limit)
}

// logMemory says which sizes of caches were chosen.
func logMemory(log *slog.Logger, c *config.Config, m config.Memory, container int64) {
	log.Info("caches are sized for the memory", "aim", m.Aim, "limit", m.Limit, "container_limit", container,
		"object_cache_bytes", c.Replica.RecordCache, "watch_ring_bytes", c.Replica.Watch.RingBytes,
		"index_cache_entries", c.Replica.Write.IndexCache)
}

// relaxCollector lets the heap grow to aim bytes.
func relaxCollector(aim int64) (restore func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	r := &relaxed{aim: aim, percent: growth(0, aim), live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	before := debug.SetGCPercent(r.percent)
	r.afterEachCollection()
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.done = true
		debug.SetGCPercent(before)
	}
}

type relaxed struct {
	aim     int64
	mu      sync.Mutex
	percent int
	live    []metrics.Sample
	done    bool
}

// afterEachCollection adapts to the heap that the collection has left. A finalizer runs after
// the collection that finds its object unused, in a goroutine of the runtime.
func (r *relaxed) afterEachCollection() {
	runtime.SetFinalizer(&struct{ _ [16]byte }{}, func(any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.done {
			return
		}
		metrics.Read(r.live)
		if percent := growth(r.live[0].Value.Uint64(), r.aim); percent != r.percent {
			r.percent = percent
			debug.SetGCPercent(percent)
		}
		r.afterEachCollection()
	})
}

// growth returns by how many percent a heap of live bytes may grow that is to have at most aim bytes, rounded
// to 10, because each change stops the world for a moment.
func growth(live uint64, aim int64) int {
	times := min(garbageBytes, float64(aim)-float64(live)) / float64(max(live, 1))
	return int(math.Round(min(max(times, minGrowth), maxGrowth)*10)) * 10
}
