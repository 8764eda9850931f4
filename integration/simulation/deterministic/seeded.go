package deterministic

import (
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
)

// Enabled reports whether the binary was built with the overlay. Without it Test is only synctest.Test.
const Enabled = enabled

// Test runs f in a bubble of testing/synctest. With the overlay the same seed gives the same run. Not for parallel tests.
func Test(t *testing.T, seed uint64, f func(*testing.T)) {
	t.Helper()
	if !enabled {
		synctest.Test(t, f)
		return
	}
	// crypto/rand of the whole process, until t ends.
	cryptotest.SetGlobalRandom(t, seed)
	// With one P no goroutine outside the bubble runs next to it.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	// Two collections empty every sync.Pool. After them there is none until the bubble ends, or memory is short.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(memoryLimit))
	runtime.GC()
	runtime.GC()
	p := rand.New(rand.NewPCG(seed, 1))
	arm(p.Uint64(), shuffles[p.IntN(len(shuffles))], yields[p.IntN(len(yields))])
	synctest.Test(t, f)
	if _, strays := stats(); strays != 0 {
		t.Errorf("%d times a goroutine of the bubble ran out of turn: the run may not be repeatable", strays)
	}
}

const memoryLimit = 3 << 30

// Some seeds run goroutines in the order in which they became runnable, others in random order, or in between; and some
// switch at locks and channel operations that need not wait.
var (
	shuffles = []uint32{0, 32, 128, 256}          // of 256
	yields   = []uint32{0, 0, 256, 2048, 1 << 14} // of 65536
)

// Switches returns how often the last bubble chose the next goroutine to run.
func Switches() uint64 {
	n, _ := stats()
	return n
}
