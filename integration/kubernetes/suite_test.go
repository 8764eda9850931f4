package kubernetes

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(harness.Main(enginetest.Main(m)))
}

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

// TestAPIServerStorage: kube-apiserver's storage works on sqlbrain as on etcd.
func TestAPIServerStorage(t *testing.T) {
	if os.Getenv("SQLBRAIN_LONG") != "1" {
		t.Skip("takes minutes; set SQLBRAIN_LONG=1")
	}
	run := os.Getenv("SQLBRAIN_KUBERNETES_RUN")
	dir := copyModule(t.Context(), t, !harness.TargetIsEtcd())
	for _, e := range engines(t) {
		t.Run(e.name, func(t *testing.T) {
			env := e.environment(t)
			for _, p := range packages {
				outcomes, err := runTests(t.Context(), dir, p.path, run, env, t.Output())
				if err != nil {
					t.Error(err)
				}
				if err := again(t, outcomes, dir, p.path, env); err != nil {
					t.Error(err)
				}
				if run == "" && len(outcomes) < p.tests {
					t.Errorf("%s: %d tests ran, there are %d", p.path, len(outcomes), p.tests)
				}
				tell(t, outcomes, exceptions[e.name])
			}
		})
	}
}

// again runs failed tests that judge by the clock once more, alone, and puts
// what became of them in the place of what did before.
func again(t *testing.T, outcomes []*outcome, dir, pkg string, env []string) error {
	for i, o := range outcomes {
		reason, listed := judgeByClock[o.name]
		if !listed || o.result != "fail" {
			continue
		}
		t.Logf("%s failed and is run again, because it %s:\n%s", o.name, reason, o.output.Bytes())
		_, name, _ := strings.Cut(o.name, ".")
		alone, err := runTests(t.Context(), dir, pkg, "^"+name+"$", env, t.Output())
		if err != nil {
			return err
		}
		if len(alone) != 1 {
			return fmt.Errorf("%s, run again alone: %d tests ran", o.name, len(alone))
		}
		outcomes[i] = alone[0]
	}
	return nil
}

type engine struct {
	name        string
	environment func(*testing.T) []string
}

func engines(t *testing.T) []engine {
	if harness.TargetIsEtcd() {
		return []engine{{"etcd", func(*testing.T) []string { return os.Environ() }}}
	}
	common := append(os.Environ(), "SQLBRAIN_PROGRAM="+harness.Sqlbrain(t))
	return []engine{
		{"sqlite", func(*testing.T) []string { return common }},
		{"mysql", func(t *testing.T) []string {
			return append(common[:len(common):len(common)], "SQLBRAIN_DATASTORES="+serveDatabases(t))
		}},
	}
}

// tell makes each outcome a subtest.
func tell(t *testing.T, outcomes []*outcome, exceptions map[string]string) {
	count := map[string]int{}
	for _, o := range outcomes {
		count[o.result]++
		t.Run(o.name, func(t *testing.T) {
			reason, excepted := exceptions[o.name]
			switch {
			case excepted && o.result == "pass":
				t.Errorf("passes, and is listed as an exception: %s", reason)
			case excepted:
				t.Skipf("known exception: %s", reason)
			case o.result == "skip":
				t.Skip("skips itself")
			case o.result != "pass":
				t.Errorf("%s\n%s", o.result, o.output.Bytes())
			}
		})
	}
	t.Logf("%d passed, %d failed, %d skipped, %d did not end", count["pass"], count["fail"], count["skip"], count[""])
}
