package main

import (
	"os"
	"runtime"
)

// useTwoThreads lets two threads run Go code at a time where Go would let one, which it does for a process that may use one
// processor. A thread in a system call, as one that flushes a log, keeps its right to run Go code until Go's monitor
// takes that away, some 100 µs later. With one such right, requests are not read meanwhile, so a commit has one or two changes
// in place of ten (docs/performance.md). GOMAXPROCS in the environment overrides this.
func useTwoThreads() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < 2 {
		runtime.GOMAXPROCS(2)
	}
}
