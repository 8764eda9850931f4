package compat

import (
	"cmp"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// The flags that choose histories; README.md says more. 0: as many as a run of that length has.
var (
	histories  = flag.Int("histories", 0, "sequential histories for each engine")
	concurrent = flag.Int("concurrent", 0, "concurrent histories for each engine")
	length     = flag.Int("length", 0, "steps of a history")
	listed     = flag.String("steps", "", "the steps to run of a history, as a failure prints them: 3,17,20")
)

// number returns the value of a flag or, if it is not set, the usual or long number.
func number(given *int, usual, long int) int {
	if harness.Long() {
		usual = long
	}
	return cmp.Or(*given, usual)
}

// firstSeed is that of the first history.
func firstSeed() int { return int(cmp.Or(harness.GivenSeed(), 1)) }

func lengthOfHistory() int { return number(length, 300, 600) }

// TestHistories sends the same random requests to etcd and to sqlbrain, one after
// the other, and compares everything that comes back, and the state they leave.
func TestHistories(t *testing.T) {
	n := share(histories, 4, 60)
	if harness.GivenSeed() != 0 && *histories == 0 {
		n = func(harness.Engine) int { return 1 }
	}
	harness.ForEachEngine(t, func(t *testing.T, e harness.Engine) {
		t.Parallel()
		for i := range n(e) {
			t.Run(fmt.Sprintf("seed=%d", firstSeed()+i), func(t *testing.T) {
				t.Parallel()
				testHistory(t, e, uint64(firstSeed()+i), stepNumbers(t))
			})
		}
	})
}

// stepNumbers are those that are asked for, or the first of them.
func stepNumbers(t *testing.T) (steps []int) {
	t.Helper()
	if *listed != "" {
		for s := range strings.SplitSeq(*listed, ",") {
			n, err := strconv.Atoi(s)
			if err != nil {
				t.Fatalf("-steps: %v", err)
			}
			steps = append(steps, n)
		}
		return steps
	}
	for i := range lengthOfHistory() {
		steps = append(steps, i)
	}
	return steps
}

func testHistory(t *testing.T, e harness.Engine, seed uint64, steps []int) {
	found := runHistory(t, e, seed, steps)
	if found.diff == "" {
		return
	}
	spoil()
	steps = steps[:found.steps]
	differs := func(some []int) bool {
		again := runHistory(t, e, seed, some)
		if again.diff == "" || again.kind() != found.kind() {
			return false
		}
		found = again
		return true
	}
	shrinks := *listed == ""
	if shrinks {
		t.Logf("the servers differ after %d steps, which are run again; the difference was %s\nThe subject's log ends "+
			"with\n%s", len(steps), found.diff, found.log)
	}
	switch {
	case shrinks && !differs(steps):
		t.Log("they do not differ when the same is run again: this is not shrunk")
	case shrinks:
		steps = shrink(steps, differs)
	}
	numbers := make([]string, len(steps))
	for i, s := range steps {
		numbers[i] = strconv.Itoa(s)
	}
	t.Errorf("etcd and %s differ. Replay with\ngo test ./compat -run 'TestHistories/%s' -seed %d -steps "+
		"%s\nRequests:\n%s\nDifference: %s\nThe subject's log ends with\n%s",
		e.Name, e.Name, seed, strings.Join(numbers, ","), strings.Join(found.trace, "\n"), found.diff, found.log)
}

// finding is what a run found.
type finding struct {
	diff  string // the first difference; "" if there is none
	steps int    // how many steps that took
	trace []string
	log   string // the end of the subject's, if there is a difference
}

// logShown is how much of a server's log a failure shows.
const logShown = 2000

// kind classifies differences, so that shrinking does not switch from one to another.
func (f finding) kind() string {
	kind, _, _ := strings.Cut(f.diff, " ")
	return kind
}

// runHistory runs the steps on a fresh pair of servers.
func runHistory(t *testing.T, e harness.Engine, seed uint64, steps []int) (f finding) {
	t.Helper()
	t.Run("run", func(t *testing.T) {
		w := newWorld(startPairWith(t, e, ownFlags(seed)), &recording{engine: e.Name, source: byHistories})
		defer w.close()
		w.run(seed, steps)
		if !w.failed() {
			w.compareState()
		}
		f = finding{diff: w.diff, steps: w.steps, trace: w.trace}
		if w.failed() {
			f.log = w.p.subject.node.Process().LogTail(logShown)
		}
	})
	return f
}

// shrink returns a short list of steps that still fails: it leaves out ever
// smaller pieces for as long as that helps (delta debugging).
func shrink(steps []int, fails func([]int) bool) []int {
	for pieces := 2; len(steps) > 1; {
		size := (len(steps) + pieces - 1) / pieces
		left := false
		for at := 0; at < len(steps) && len(steps) > 1; {
			rest := append(append([]int(nil), steps[:at]...), steps[min(at+size, len(steps)):]...)
			if len(rest) > 0 && fails(rest) {
				steps, left = rest, true
				continue // the later steps have moved to this position
			}
			at += size
		}
		switch {
		case !left && size == 1:
			return steps
		case !left:
			pieces = min(2*pieces, len(steps))
		default:
			pieces = min(max(2, pieces-1), len(steps))
		}
	}
	return steps
}
