package main

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// Go collects garbage whenever the heap has doubled. The live heap of a server is
// small, a few tens of MiB, so that it collected many times a second under load, for a
// sixth of its CPU. Here the heap may grow by garbageBytes, whatever it is, but by no
// more than maxGrowth times, and, as collections of a large one are dear, by no less
// than minGrowth; so a large heap costs less memory than before. A GOGC or GOMEMLIMIT
// of the environment is left as it is.
const (
	garbageBytes = 128 << 20
	maxGrowth    = 4.0
	minGrowth    = 0.5
)

// outsideGo is what the process has in memory besides Go's heap: its code, and stacks of
// threads.
const outsideGo = 48 << 20

// tuneCollector sets Go's garbage collector up as above until restore is called. With a
// limit, the more often the nearer the memory that Go has comes to it, in bytes; 0 is none.
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

// goMemory is what remains for Go of a limit of resident memory, 0 if there is none.
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
	r.behindEachCollection()
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

// behindEachCollection adapts to what the collection has left. A finalizer runs behind
// the collection that finds its object unused, in a goroutine of the runtime's.
func (r *relaxed) behindEachCollection() {
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
		r.behindEachCollection()
	})
}

// growth returns by how many percent a heap of live bytes may grow, in steps of 10: to
// set it stops the world for a moment.
func growth(live uint64) int {
	times := garbageBytes / float64(max(live, 1))
	return int(math.Round(min(max(times, minGrowth), maxGrowth)*10)) * 10
}
