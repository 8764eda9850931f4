// Package deterministic makes a bubble of testing/synctest repeatable: the same seed gives the same run.
//
// testing/synctest makes time deterministic. The order of goroutines, select, maps and timers stays random. This package
// patches the runtime of the Go in use with a build overlay (package overlay, go test -overlay). The patches act inside
// the seeded bubble:
//
//   - One goroutine of the bubble runs at a time. It keeps the turn while it is preempted, in a system call, or made to
//     assist the garbage collector, also where it is preempted because it clears much memory. It loses the turn when it
//     blocks, yields or ends. The seed chooses the next one.
//   - The seed chooses whether a goroutine lets others run before it takes a lock, sends, receives or closes a channel.
//   - select, timers of one instant, iterations of maps, and math/rand take their random numbers from the seed. A select
//     starts its timers in the order of its cases, and not of their addresses.
//   - Hashes of map keys are the same in all processes and on all machines. A pointer is hashed by a number that it gets
//     when it is first hashed, and not by its address.
//   - A lock becomes fair (starvation mode) by the bubble's clock, and waiting for a lock does not spin.
//   - For speed, goroutines start with 16 KiB of stack, and no memory goes back to the system between runs.
//
// [Test] does the rest without patches: one P, crypto/rand from the seed, two collections before the bubble, which empty
// every sync.Pool, and no collection inside it while the heap is below 3 GiB.
//
// Some seeds run goroutines in the order in which they became runnable. Others choose at random, always or now and then.
// So different seeds explore different orders within one instant.
//
// Without the overlay everything compiles and runs, and is not repeatable: [Enabled] is false.
//
// # What it takes
//
// Different traces of the same seed in 50 processes, on Go 1.26.8 and two busy cores (SQLBRAIN_LONG=1 go test -v
// -run 'SameSeed|Without'). Each column is one program of probe_test.go.
//
//	measures, each with those above  goroutines select maps timers locks pools contexts busy gRPC
//	none                                     28     50   50     50    31    50       50   50   50
//	GOMAXPROCS=1                              2     50   50     50    12    50       50   50   50
//	GODEBUG=asyncpreemptoff=1                 1     50   50     50     9    50       50   50   50
//	no garbage collection                     1     50   50     50     9    50       50   50   50
//	crypto/rand from the seed                 1     50   50     50    12    50       50   50   50
//	the overlay                               1      1    1      1     1     1        1    1    1
//
// Two programs are newer than the table, timeouts and allocations. Each has several traces without its own patch.
//
// The overlay needs neither asyncpreemptoff nor changes of the system monitor.
//
// # Limits
//
//   - What a process initializes once, on first use, is part of the first run only, and can shift what follows. Locks of
//     package variables, sync.Once and sync.Pool are no places to switch, and most random numbers start anew with each
//     switch, to keep the shift small. A process should also run bubbles that do not count before the others. Something
//     that only few seeds use may still be initialized late. Then the trace of such a seed is repeatable only together
//     with the seeds before it.
//   - Goroutines outside the bubble must not wake goroutines inside it, and the bubble must not use real files, sockets or
//     clocks whose results differ. Test reports the first as an error.
//   - The order of pointers by address, and %p, differ between processes.
//   - Collections inside the bubble empty pools at other moments. They do not change the order of goroutines.
//   - Goroutines switch only where they wait, and before locks and channel operations. Between two atomic operations they
//     do not. The race detector finds more there.
//
// # Alternatives
//
// GOOS=js and wasip1 have one thread and no preemption, and the host gives time and random numbers, so that no patch of
// the scheduler is needed for a repeatable run. Polar Signals tests FrostDB this way, with a seed for the runtime
// (https://www.polarsignals.com/blog/posts/2024/05/28/mostly-dst-in-go). There is always one order of goroutines for a
// seed of the runtime, the scheduler's own, the code runs several times slower in an interpreter or needs a WebAssembly
// compiler, and the server's dependencies do not all build for it. Rewriting the source of all packages to another
// scheduler, as gosim does, needs its own runtime, channels and maps. The proposal to seed the runtime,
// https://go.dev/issue/67690, is open and would not order goroutines.
package deterministic
