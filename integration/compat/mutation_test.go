package compat

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// envMutate runs TestMutations; with a text, only the mutations whose name has it.
const envMutate = "SQLBRAIN_COMPAT_MUTATE"

// mutation is a mistake: the one place in the package (a folder) that reads from is
// made to read to. How from is broken into lines and indented does not matter.
type mutation struct {
	name, pkg, from, to string
}

var mutations = []mutation{
	{"more is said where the limit is just reached", "server/backend",
		"int64(len(records)) > q.Limit {\n\t\trecords = records[:q.Limit]\n\t\tres.More", "int64(len(records)) >= q.Limit {\n\t\trecords = records[:q.Limit]\n\t\tres.More"},
	{"a page's count stops at the limit", "server/backend",
		"if res.Count, err = r.count(ctx, q.KeyRange); err != nil {", "if res.Count = n + 1; err != nil {"},
	{"a future revision is accepted", "server/backend", "case asked > cur:", "case asked > cur+1:"},
	{"the compact revision itself cannot be read", "server/backend",
		"case asked < b.compacted.Load():\n\t\treturn 0, ErrCompacted", "case asked <= b.compacted.Load():\n\t\treturn 0, ErrCompacted"},
	{"keys_only leaves the lease", "server/backend", "stripped[i].Lease = 0", "stripped[i].Lease = r.Lease"},
	{"a limit without an order comes behind the sort", "server/backend", "records = records[:q.Limit+1]", "records = records[:]"},
	{"prev_kv of a put is dropped for a key's second version", "server/backend",
		"if p.PrevKV {\n\t\tres.Prev = prev", "if p.PrevKV && (prev == nil || prev.Version != 1) {\n\t\tres.Prev = prev"},
	{"version and create revision go on behind a delete", "server/backend",
		"if !e.live() {\n\t\treturn nil, nil\n\t}\n\treturn e.Record(key), nil", "if !e.exists {\n\t\treturn nil, nil\n\t}\n\treturn e.Record(key), nil"},
	{"an inner range has the header of the end", "server/backend", "res.Revision = st.revision()\n\treturn res, nil\n}", "res.Revision = st.rev\n\treturn res, nil\n}"},
	{"a nested compare sees the transaction's own writes", "server/backend",
		"r.Txn, err = execute(ctx, st, d.nested[i])", "if d.nested[i], err = decide(ctx, st, op.Txn); err == nil {\n\t\t\t\tr.Txn, err = execute(ctx, st, d.nested[i])\n\t\t\t}"},
	{"a range compare holds if the last key matches", "server/backend", "for _, r := range records {\n\t\tif !c.matches(r)", "for _, r := range records[len(records)-1:] {\n\t\tif !c.matches(r)"},
	{"a value compare of a missing key compares with nothing", "server/backend", "return c.Target != CompareValue && c.matches", "return c.matches"},
	{"a put does not detach the key from its lease", "server/backend", "if before != 0 {", "if before != 0 && after != 0 {"},
	{"a lease's keys are deleted in another order", "server/backend", "for _, key := range a.keys {", "for _, key := range slices.Backward(a.keys) {"},
	{"a compaction at the compact revision is accepted", "server/backend", "case c.rev <= c.l.compacted.Load():", "case c.rev < c.l.compacted.Load():"},
	{"compaction removes the newest version too", "server/backend", "lo, hi := coder.LogBounds(0, rev-1)", "lo, hi := coder.LogBounds(0, rev+1)"},
	{"a hash forgets the tombstones", "server/backend", "} else {\n\t\t\trefs = append(refs, *newest)", "} else if !newest.tombstone {\n\t\t\trefs = append(refs, *newest)"},
	{"the events of a response are reversed", "server", "out.Events[i] = &events[i]", "out.Events[len(r.Events)-1-i] = &events[i]"},
	{"the filters are exchanged", "server", "c.NoPut = true", "c.NoDelete = true"},
	{"a delete event tells of the version", "server", "ModRevision: e.Record.ModRevision}", "ModRevision: e.Record.ModRevision, Version: 1}"},
	{"progress does not wait for watches that have not started", "watch", "if w.start > frontier {\n\t\t\treturn\n\t\t}\n\t\tdelete(s.future, w)", "delete(s.future, w)"},
	{"progress does not wait for watches that are not synced", "watch", "if s.unsynced > 0 || len(s.watchers) == 0 {", "if len(s.watchers) == 0 {"},
	{"an id in use is given again", "watch", "case w.id != 0 && s.watchers[w.id] != nil:", "case w.id == 1<<50:"},
	{"a watch misses the revision it starts at", "watch", "h.enterBehind(w, w.start)", "h.enterBehind(w, w.start+1)"},
	{"a watch at the compact revision is cancelled", "watch", "return w.next < h.compact &&", "return w.next <= h.compact &&"},
	{"a branch may have 129 operations", "server", "if n > maxOps {", "if n > maxOps+1 {"},
	{"a put may overlap a delete in its branch", "server", "if w.deletesWhatAnotherPuts() {", "if false {"},
	{"a missing lease has a time to live of 0", "server/backend", "return LeaseStatus{ID: id, TTL: -1}, nil", "return LeaseStatus{ID: id}, nil"},
	{"a compare with an unknown result is false", "server", "case !result || c.Result == pb.Compare_EQUAL:", "case result && c.Result == pb.Compare_EQUAL:"},
	{"a header is that of the state before a write", "server", "s.headers.at(res.Put.Revision)", "s.headers.at(res.Put.Revision-1)"},
}

// TestMutations plants one mistake at a time in a copy of the product, and shows
// that the other tests of this package find it.
func TestMutations(t *testing.T) {
	only := os.Getenv(envMutate)
	if only == "" {
		t.Skip(envMutate + " is not set")
	}
	root := copyProduct(t)
	etcd := harness.Etcd(t)
	// findings builds what is in root now, and returns which tests fail with it.
	findings := func(t *testing.T) (by []string) {
		t.Helper()
		programs := t.TempDir()
		if err := os.Symlink(etcd, filepath.Join(programs, "etcd")); err != nil {
			t.Fatal(err)
		}
		build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(programs, "sqlbrain"), "./cmd/sqlbrain")
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, out)
		}
		for _, tests := range []string{"TestHistories", "TestRange|TestPutAndDelete|TestTxn|TestCompact|TestWatch|TestLease|TestMaintenance"} {
			if found := runAgainst(t, programs, tests); found != "" {
				by = append(by, found)
			}
		}
		return by
	}
	if by := findings(t); len(by) > 0 {
		t.Fatalf("the product as it is fails %s", strings.Join(by, " and "))
	}
	for _, m := range mutations {
		if only != "1" && !strings.Contains(m.name, only) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			defer m.plant(t, root)()
			by := findings(t)
			if len(by) == 0 {
				t.Fatal("nothing finds it")
			}
			t.Logf("found by %s", strings.Join(by, " and "))
		})
	}
	// What was found all the while must have been the mistakes.
	if by := findings(t); len(by) > 0 {
		t.Errorf("the product as it is fails %s, behind the mutations", strings.Join(by, " and "))
	}
}

// copyProduct copies the sources of sqlbrain's own module.
func copyProduct(t *testing.T) string {
	t.Helper()
	from, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := e.Name(); name != "go.mod" && name != "go.sum" && (!e.IsDir() || strings.HasPrefix(name, ".") || name == "integration" || name == "bin" || name == "sqlbrain.data") {
			continue
		}
		if out, err := exec.CommandContext(t.Context(), "cp", "-r", filepath.Join(from, e.Name()), to).CombinedOutput(); err != nil {
			t.Fatalf("copy %s: %v\n%s", e.Name(), err, out)
		}
	}
	return to
}

// TestMutationsApply fails when the code has changed so that a mistake can no
// longer be planted.
func TestMutationsApply(t *testing.T) {
	for _, m := range mutations {
		if _, _, err := m.place(filepath.Join("..", "..")); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

// place finds the one place in the sources under root that reads from.
func (m mutation) place(root string) (path string, at []int, err error) {
	var words []string
	for _, w := range strings.Fields(m.from) {
		words = append(words, regexp.QuoteMeta(w))
	}
	reads := regexp.MustCompile(strings.Join(words, `\s+`))
	files, err := filepath.Glob(filepath.Join(root, m.pkg, "*.go"))
	if err != nil {
		return "", nil, err
	}
	places := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return "", nil, err
		}
		for _, found := range reads.FindAllIndex(source, -1) {
			places++
			path, at = file, found
		}
	}
	if places != 1 {
		return "", nil, fmt.Errorf("%d places in %s read %q, want one: change the mutation with the code", places, m.pkg, m.from)
	}
	return path, at, nil
}

// plant makes the mistake in the copy, and returns what takes it out again.
func (m mutation) plant(t *testing.T, root string) (restore func()) {
	t.Helper()
	path, at, err := m.place(root)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	wrong := slices.Concat(source[:at[0]], []byte(m.to), source[at[1]:])
	if err := os.WriteFile(path, wrong, 0o644); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.WriteFile(path, source, 0o644); err != nil {
			t.Error(err)
		}
	}
}

var failedTest = regexp.MustCompile(`--- FAIL: (\S+)`)

// runAgainst runs tests of this binary on SQLite against the programs of a
// directory, and returns the name of the one that failed last, "" if none did.
func runAgainst(t *testing.T, programs, tests string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, os.Args[0], "-test.run", fmt.Sprintf("^(%s)$/^sqlite$", tests), "-test.failfast")
	run.Env = append(os.Environ(), harness.EnvPrograms+"="+programs, envShrink+"=0", envMutate+"=")
	out, err := run.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return ""
	case !errors.As(err, &exit) || exit.ExitCode() != 1:
		t.Fatalf("%v\n%s", err, out)
	}
	deepest := "?"
	for _, m := range failedTest.FindAllSubmatch(out, -1) {
		if name := string(m[1]); strings.Count(name, "/") >= strings.Count(deepest, "/") {
			deepest = name
		}
	}
	return deepest
}
