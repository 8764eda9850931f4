package main

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// Go collects garbage whenever the heap has doubled. The live heap of a server is small, a few
// tens of MiB, so by default it would collect many times a second under load, which takes a sixth
// of its CPU. Here the heap may grow by garbageBytes between collections, but by at most maxGrowth
// times its size, and, because collections of a large heap are expensive, by at least minGrowth
// times. So a large heap takes less memory than by default. GOGC and GOMEMLIMIT in the environment
// override this.
const (
	garbageBytes = 128 << 20
	maxGrowth    = 4.0
	minGrowth    = 0.5
)

// outsideGo is the resident memory outside Go's heap: the program's code, and stacks of
// threads.
const outsideGo = 48 << 20

// tuneCollector configures Go's garbage collector as above until restore is called. If limit is
// not 0, Go also collects more often as its memory approaches limit bytes.
func tuneCollector(limit int64) (restore func()) {
	if limit > 0 {
		relax, before := relaxCollector(), debug.SetMemoryLimit(limit)
		return func() {
			debug.SetMemoryLimit(before)
			relax()
		}
	}
	return relaxCollector()
}

// goMemory returns the part of a limit of resident memory that is left for Go; 0 for no limit.
func goMemory(limit, pageCaches int64) int64 {
	if limit == 0 {
		return 0
	}
	return max(limit-outsideGo-pageCaches, 1)
}

func relaxCollector() (restore func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	r := &relaxed{percent: growth(0), live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
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
		if percent := growth(r.live[0].Value.Uint64()); percent != r.percent {
			r.percent = percent
			debug.SetGCPercent(percent)
		}
		r.afterEachCollection()
	})
}

// growth returns by how many percent a heap of live bytes may grow, rounded to 10, because each
// change stops the world for a moment.
func growth(live uint64) int {
	times := garbageBytes / float64(max(live, 1))
	return int(math.Round(min(max(times, minGrowth), maxGrowth)*10)) * 10
}
