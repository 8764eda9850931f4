package compat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/mutation"
)

// envMutate runs TestMutations; with a text, only the mutations whose name has it.
const envMutate = "SQLBRAIN_COMPAT_MUTATE"

func mistake(name, pkg, from, to string) mutation.Mutation {
	return mutation.Mutation{Name: name, Package: pkg, From: from, To: to}
}

var mutations = []mutation.Mutation{
	mistake("more is said where the limit is just reached", "server/mvcc",
		"int64(len(records)) > q.Limit {\n\t\trecords = records[:q.Limit]\n\t\tres.More", "int64(len(records)) >= q.Limit {\n\t\trecords = records[:q.Limit]\n\t\tres.More"),
	mistake("a page's count stops at the limit", "server/mvcc/read",
		"if res.Count, err = r.Count(ctx, q.Span()); err != nil {", "if res.Count = n + 1; err != nil {"),
	mistake("a future revision is accepted", "server/mvcc/read", "case asked > now.rev:", "case asked > now.rev+1:"),
	mistake("the compact revision itself cannot be read", "server/mvcc/read",
		"case asked < now.reader.node.CompactRevision():\n\t\treturn nil, mvcc.ErrCompacted", "case asked <= now.reader.node.CompactRevision():\n\t\treturn nil, mvcc.ErrCompacted"),
	mistake("keys_only leaves the lease", "server/mvcc", "stripped[i].Lease = 0", "stripped[i].Lease = r.Lease"),
	mistake("a limit without an order comes behind the sort", "server/mvcc", "records = records[:q.Limit+1]", "records = records[:]"),
	mistake("prev_kv of a put is dropped for a key's second version", "server/mvcc/write",
		"if p.PrevKV {\n\t\tres.Prev = prev", "if p.PrevKV && (prev == nil || prev.Version != 1) {\n\t\tres.Prev = prev"),
	mistake("version and create revision go on behind a delete", "server/mvcc/write",
		"if !e.live() {\n\t\treturn nil, nil\n\t}\n\tif !value {", "if !e.exists {\n\t\treturn nil, nil\n\t}\n\tif !value {"),
	mistake("an inner range has the header of the end", "server/mvcc/write", "res.Revision = tx.Revision()\n\treturn res, nil\n}", "res.Revision = tx.rev\n\treturn res, nil\n}"),
	mistake("a nested compare sees the transaction's own writes", "server/mvcc/write",
		"r.Txn, err = execute(ctx, tx, d.nested[i])", "if d.nested[i], err = decide(ctx, tx, op.Txn); err == nil {\n\t\t\t\tr.Txn, err = execute(ctx, tx, d.nested[i])\n\t\t\t}"),
	mistake("a range compare holds if the last key matches", "server/mvcc/write", "for _, r := range records {\n\t\tif !c.Matches(r)", "for _, r := range records[len(records)-1:] {\n\t\tif !c.Matches(r)"),
	mistake("a value compare of a missing key compares with nothing", "server/mvcc/write", "return c.Target != mvcc.CompareValue && c.Matches", "return c.Matches"),
	mistake("a put does not detach the key from its lease", "server/mvcc/write", "if before != 0 {", "if before != 0 && after != 0 {"),
	mistake("a lease's keys are deleted in another order", "server/mvcc/write", "for _, key := range a.keys {", "for _, key := range slices.Backward(a.keys) {"),
	mistake("a compaction at the compact revision is accepted", "server/mvcc/compact", "case rev <= m.Revision():", "case rev < m.Revision():"),
	mistake("compaction removes the newest version too", "server/mvcc/compact", "if change.Revision > rev {", "if change.Revision > rev+1 {"),
	mistake("a hash forgets the tombstones", "server/mvcc/export", "} else {\n\t\t\trefs = append(refs, *newest)", "} else if !newest.tombstone {\n\t\t\trefs = append(refs, *newest)"),
	mistake("the events of a response are reversed", "server/etcd", "out.Events[i] = &events[i]", "out.Events[len(r.Events)-1-i] = &events[i]"),
	mistake("the filters are exchanged", "server/etcd", "c.NoPut = true", "c.NoDelete = true"),
	mistake("a delete event tells of the version", "server/etcd", "ModRevision: e.Record.ModRevision}", "ModRevision: e.Record.ModRevision, Version: 1}"),
	mistake("progress does not wait for watches that have not started", "watch", "if w.start > frontier {\n\t\t\treturn\n\t\t}\n\t\tdelete(s.future, w)", "delete(s.future, w)"),
	mistake("progress does not wait for watches that are not synced", "watch", "if s.unsynced > 0 || len(s.watchers) == 0 {", "if len(s.watchers) == 0 {"),
	mistake("an id in use is given again", "watch", "case w.id != 0 && s.watchers[w.id] != nil:", "case w.id == 1<<50:"),
	mistake("a watch misses the revision it starts at", "watch", "h.enterBehind(w, w.start)", "h.enterBehind(w, w.start+1)"),
	mistake("a watch at the compact revision is cancelled", "watch", "return w.next < h.compact &&", "return w.next <= h.compact &&"),
	mistake("a branch may have 129 operations", "server/etcd", "if n > maxOps {", "if n > maxOps+1 {"),
	mistake("a put may overlap a delete in its branch", "server/etcd", "if w.deletesWhatALaterOnePuts() {", "if false {"),
	mistake("a missing lease has a time to live of 0", "server/lease", "return Status{ID: id, TTL: -1}", "return Status{ID: id}"),
	mistake("a compare with an unknown result is false", "server/etcd", "case !result || c.Result == pb.Compare_EQUAL:", "case result && c.Result == pb.Compare_EQUAL:"),
	mistake("a header is that of the state before a write", "server/etcd", "s.headers.at(res.Put.Revision)", "s.headers.at(res.Put.Revision-1)"),
}

// TestMutations plants one mistake at a time in the product, and shows that the other tests of
// this package find it.
func TestMutations(t *testing.T) {
	only := os.Getenv(envMutate)
	if only == "" {
		t.Skip(envMutate + " is not set")
	}
	etcd := harness.Etcd(t)
	// findings builds the product with an overlay, "" for none, and returns which tests fail with it.
	findings := func(t *testing.T, overlay string) (by []string) {
		t.Helper()
		programs := t.TempDir()
		if err := os.Symlink(etcd, filepath.Join(programs, "etcd")); err != nil {
			t.Fatal(err)
		}
		build := exec.CommandContext(t.Context(), "go", "build", "-overlay="+overlay, "-o", filepath.Join(programs, "sqlbrain"), "./cmd/sqlbrain")
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
	if by := findings(t, ""); len(by) > 0 {
		t.Fatalf("the product as it is fails %s", strings.Join(by, " and "))
	}
	for _, m := range mutations {
		if only != "1" && !strings.Contains(m.Name, only) {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			overlay, err := m.Plant(root, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			by := findings(t, overlay)
			if len(by) == 0 {
				t.Fatal("nothing finds it")
			}
			t.Logf("found by %s", strings.Join(by, " and "))
		})
	}
	// Without mutations the tests must pass again: only the mutations caused the failures.
	if by := findings(t, ""); len(by) > 0 {
		t.Errorf("the unmodified product fails %s after the mutations", strings.Join(by, " and "))
	}
}

// root is the repository, from here.
var root = filepath.Join("..", "..")

// TestMutationsApply fails when the code has changed so that a mistake can no
// longer be planted.
func TestMutationsApply(t *testing.T) {
	for _, m := range mutations {
		if _, err := m.File(root); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

// runAgainst runs tests of this binary on SQLite against the programs of a
// directory, and returns the name of the one that failed, "" if none did.
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
	return cmp.Or(mutation.Failure(out), "?")
}
