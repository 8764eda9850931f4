package kubernetes

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/gotest"
	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

func TestMain(m *testing.M) { harness.TestMain(m) }

// packages of the module whose tests start a server, with the number of their
// top-level tests: fewer means that something was not run.
var packages = []struct {
	path  string
	tests int
}{
	{"pkg/storage/etcd3", 70},
	{"pkg/storage/cacher", 135},
	{"pkg/storage/storagebackend/factory", 6},
}

// judgeByClock are the tests that fail on a busy machine, with what they do.
var judgeByClock = map[string]string{
	"etcd3.TestCompact": "allows a compaction 100 ms",
	"cacher.TestWatch":  "allows 3 s for a hundred creations",
}

// tests are those to run on every subject, in place of the short form.
var tests = flag.String("tests", "", "run the tests of kube-apiserver that match this pattern on every subject")

// short are the tests that run without SQLBRAIN_LONG, on the subjects that say so:
// each kind of request once, and what a follower could get wrong.
var short = struct {
	pkg   string
	tests []string
}{
	pkg: "pkg/storage/etcd3",
	tests: []string{
		"TestCreate", "TestCreateWithTTL", "TestGet", "TestConditionalDelete", "TestPreconditionalDeleteWithSuggestion",
		"TestGuaranteedUpdate", "TestGuaranteedUpdateWithConflict", "TestList", "TestListContinuation",
		"TestListInconsistentContinuation",
		"TestListPaging", "TestConsistentList", "TestLinearizedReadRevisionInvariant", "TestGetListStreamMultiChunk",
		"TestWatchWithShardSelector", "TestCompactConflict", "TestStats",
	},
}

// TestAPIServerStorage: kube-apiserver's storage works on sqlbrain as on etcd.
func TestAPIServerStorage(t *testing.T) {
	long := harness.Long() || *tests != ""
	dir := copyModule(t.Context(), t, !harness.TargetIsEtcd())
	for _, p := range packages {
		if long || p.path == short.pkg {
			if err := compile(t.Context(), dir, p.path); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, s := range subjects() {
		t.Run(s.name, func(t *testing.T) {
			switch {
			case long:
				s.testAll(t, dir)
			case s.short:
				s.testShort(t, dir)
			default:
				t.Skip("takes minutes; set SQLBRAIN_LONG=1")
			}
		})
	}
}

// testAll runs the tests of all packages, or those that the flag asks for.
func (s subject) testAll(t *testing.T, dir string) {
	env := s.environment(t)
	for _, p := range packages {
		outcomes := s.test(t, dir, p.path, *tests, env)
		if *tests == "" && len(outcomes) < p.tests {
			t.Errorf("%s: %d tests ran, there are %d", p.path, len(outcomes), p.tests)
		}
		tell(t, outcomes)
	}
}

func (s subject) testShort(t *testing.T, dir string) {
	run := "^(" + strings.Join(short.tests, "|") + ")$"
	env := s.environment(t)
	outcomes := s.test(t, dir, short.pkg, run, env)
	if len(outcomes) != len(short.tests) {
		t.Errorf("%d tests ran, not %d", len(outcomes), len(short.tests))
	}
	tell(t, outcomes)
}

// test runs tests of a package, and returns what became of them.
func (s subject) test(t *testing.T, dir, pkg, run string, env []string) []*gotest.Outcome {
	t.Helper()
	outcomes, err := runTests(t.Context(), dir, pkg, run, env, t.Output())
	if err != nil {
		t.Error(err)
	}
	if err := again(t, outcomes, dir, pkg, env); err != nil {
		t.Error(err)
	}
	return outcomes
}

// again runs failed tests that judge by the clock once more, alone, and puts
// what became of them in the place of what did before.
func again(t *testing.T, outcomes []*gotest.Outcome, dir, pkg string, env []string) error {
	for i, o := range outcomes {
		reason, listed := judgeByClock[o.Name]
		if !listed || o.Result != "fail" {
			continue
		}
		t.Logf("%s failed and is run again, because it %s:\n%s", o.Name, reason, o.Output.Bytes())
		_, name, _ := strings.Cut(o.Name, ".")
		alone, err := runTests(t.Context(), dir, pkg, "^"+name+"$", env, t.Output())
		if err != nil {
			return err
		}
		if len(alone) != 1 {
			return fmt.Errorf("%s, run again alone: %d tests ran", o.Name, len(alone))
		}
		outcomes[i] = alone[0]
	}
	return nil
}

// tell reports each outcome as a subtest.
func tell(t *testing.T, outcomes []*gotest.Outcome) {
	count := map[string]int{}
	for _, o := range outcomes {
		count[o.Result]++
		t.Run(o.Name, func(t *testing.T) {
			switch o.Result {
			case "pass":
			case "skip":
				t.Skipf("skips itself: %s", o.Reason())
			default:
				t.Errorf("%s\n%s", o.Result, o.Output.Bytes())
			}
		})
	}
	t.Logf("%d passed, %d failed, %d skipped, %d did not end", count["pass"], count["fail"], count["skip"], count[""])
}
