package compat

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/version"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

var writePage = flag.Bool("write-page", false, "write docs/compatibility.md instead of comparing it")

// The histories that contribute to the page. They are part of every run.
const (
	pageSeeds = 2
	pageSteps = 200
)

// pageFile is the page, from here.
var pageFile = filepath.Join("..", "..", "docs", "compatibility.md")

// TestPage fails if docs/compatibility.md differs from the results of the tests before
// it. Its file sorts after theirs, because the go tool runs a package's tests in the
// order of its files.
func TestPage(t *testing.T) {
	for _, name := range []string{"test.run", "test.skip", "test.shuffle"} {
		if f := flag.Lookup(name); f.Value.String() != f.DefValue {
			t.Skipf("the page needs the results of all tests, in their order, and -%s is set", name)
		}
	}
	if *listed != "" || firstSeed() != 1 || number(histories, pageSeeds, pageSeeds) < pageSeeds ||
		lengthOfHistory() < pageSteps {
		t.Skipf("the page needs the first %d steps of the first %d histories, and the flags ask for others",
			pageSteps, pageSeeds)
	}
	if harness.TargetIsEtcd() {
		t.Skip("the page is about sqlbrain, and the target is etcd")
	}
	if enginetest.OnTiDB() {
		t.Skip("the page is about SQLite, MariaDB and MySQL")
	}
	results.Lock()
	failed, engines := results.failed, slices.Sorted(maps.Keys(results.engines))
	results.Unlock()
	if failed {
		t.Skip("the page needs the results of all tests, and some failed")
	}
	for _, e := range harness.Engines() {
		if !slices.Contains(engines, e.Name) {
			t.Skipf("the page needs results on %s, which is not available", e.Name)
		}
	}
	p := &page{subject: newSide(t, "subject", harness.StartNode(t, harness.SQLite, "--enable-pprof"))}
	want := p.write(t)
	if *writePage {
		if err := os.MkdirAll(filepath.Dir(pageFile), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(pageFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("docs/compatibility.md is not what the tests found; write it with make compatibility\n-is +should be:\n%s",
			gocmp.Diff(strings.Split(string(got), "\n"), strings.Split(string(want), "\n")))
	}
}

// page is docs/compatibility.md.
type page struct {
	bytes.Buffer
	subject *side // is asked what it serves of what nothing compared
}

// state is what is known about a part of the API.
type state struct{ is, by string }

const (
	asEtcd      = "as etcd"
	refused     = "refused as by etcd"
	notCompared = "**not compared**"
	notYet      = "**not yet**"
	differs     = "differs, as listed above"
)

// knownToDiffer are options that no test compares because the page lists a
// difference.
var knownToDiffer = map[string]bool{
	"Cluster/MemberAdd isLearner":        true,
	"Maintenance/Alarm action = unknown": true,
	"Maintenance/Alarm alarm = unknown":  true,
}

var engineTitles = map[string]string{"sqlite": "SQLite", "mariadb": "MariaDB", "mysql": "MySQL", "tidb": "TiDB"}

// on returns what the engines' marks together say; get returns an engine's.
func on(get func(*engineResults) (mark, bool)) (state, bool) {
	results.Lock()
	defer results.Unlock()
	var states []state
	var where []string
	for _, name := range slices.Sorted(maps.Keys(results.engines)) {
		m, ok := get(results.engines[name])
		if !ok {
			continue
		}
		var s state
		if s.is = refused; m.answered {
			s.is = asEtcd
		}
		switch {
		case m.claims && m.histories:
			s.by = "claims, histories"
		case m.claims:
			s.by = "claims"
		default:
			s.by = "histories"
		}
		states, where = append(states, s), append(where, engineTitles[name])
	}
	if len(states) == 0 {
		return state{}, false
	}
	for _, s := range states[1:] {
		if s != states[0] {
			return state{notCompared, "differs by engine"}, true
		}
	}
	if len(where) < len(results.engines) {
		states[0].is += ", only on " + strings.Join(where, " and ")
	}
	return states[0], true
}

func (p *page) write(t *testing.T) []byte {
	fmt.Fprintf(p, `# Compatibility with etcd %s

<!-- Written by "make compatibility" from the results of integration/compat. Only the first two sections are edited by hand. -->

The same requests go to a sqlbrain and to an etcd, and what comes back is compared field by field, on SQLite, MariaDB and
MySQL. This page lists all RPCs, options of requests and HTTP paths of etcd's client API, taken from the descriptors
of its packages, with what those tests found. A test fails when the page says anything else.

| | |
|---|---|
| %s | compared, and there was no difference |
| %s | compared so far only in requests that both refuse, with the same code and text |
| %s | served, but no test compares it with etcd's |
| %s | sqlbrain answers `+"`Unimplemented`"+`, or 404 |

*Claims* are named tests, one for each sentence about what a compatible server must get right; *histories* are seeded random
requests. Both are described in [integration/compat](../integration/compat/README.md).
`, version.Version, asEtcd, refused, notCompared, notYet)
	p.differences(t)
	p.rpcs(t)
	p.paths(t)
	p.options()
	return p.Bytes()
}

// differences keeps the sections of the page that are not written by tests.
func (p *page) differences(t *testing.T) {
	t.Helper()
	old, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, title := range []string{"Known differences, accepted", "Not compared"} {
		_, text, found := strings.Cut(string(old), "\n## "+title+"\n")
		if !found {
			t.Fatalf("%s has no section %q", pageFile, title)
		}
		text, _, _ = strings.Cut(text, "\n## ")
		fmt.Fprintf(p, "\n## %s\n%s\n", title, strings.TrimSpace(text))
	}
}

func (p *page) rpcs(t *testing.T) {
	fmt.Fprintf(p, "\n## RPCs\n| RPC | answers | compared by |\n|---|---|---|\n")
	for _, r := range etcdRPCs() {
		s := p.rpc(t, r)
		fmt.Fprintf(p, "| %s | %s | %s |\n", r.short(), s.is, s.by)
	}
}

func (p *page) rpc(t *testing.T, r rpc) state {
	s, ok := on(func(e *engineResults) (mark, bool) { m, ok := e.rpcs[r.full()]; return m, ok })
	switch {
	case ok:
		return s
	case p.subject.serves(t, r):
		return state{is: notCompared}
	default:
		return state{is: notYet}
	}
}

func (p *page) paths(t *testing.T) {
	fmt.Fprintf(p, "\n## HTTP\n| path | answers | parameters |\n|---|---|---|\n")
	for _, path := range slices.Concat(gatewayPaths(), otherPaths) {
		s, ok := on(func(e *engineResults) (mark, bool) { m, ok := e.http[path.String()]; return m, ok })
		if !ok {
			if s.is = notYet; p.subject.servesPath(t, path) {
				s.is = notCompared
			}
		}
		parameters := make(map[string]bool)
		for _, e := range results.engines {
			maps.Copy(parameters, e.asks[path.String()])
		}
		fmt.Fprintf(p, "| %s | %s | %s |\n", path, s.is, strings.Join(slices.Sorted(maps.Keys(parameters)), ", "))
	}
}

func (p *page) options() {
	fmt.Fprintf(p, "\n## Options of requests\nNested requests of the same kind are not distinguished: `request_txn` is "+
		"listed once.\n")
	for _, r := range etcdRPCs() {
		all := options(r.method.Input())
		if _, ok := on(func(e *engineResults) (mark, bool) { m, ok := e.rpcs[r.full()]; return m, ok }); !ok ||
			len(all) == 0 {
			continue // as the RPC itself
		}
		fmt.Fprintf(p, "\n### %s\n| option | answers | compared by |\n|---|---|---|\n", r.short())
		for _, o := range all {
			p.option(r, o)
		}
	}
}

// option writes a line for each state that values of the option have.
func (p *page) option(r rpc, o option) {
	var states []state
	values := make(map[state][]string)
	for i, key := range o.keys() {
		s, ok := on(func(e *engineResults) (mark, bool) { m, ok := e.opts[r.full()][key]; return m, ok })
		if !ok {
			if s.is = notCompared; knownToDiffer[r.short()+" "+key] {
				s.is = differs
			}
		}
		if !slices.Contains(states, s) {
			states = append(states, s)
		}
		if len(o.values) > 0 {
			values[s] = append(values[s], o.values[i])
		}
	}
	slices.SortStableFunc(states, func(a, b state) int { return cmp.Compare(len(values[b]), len(values[a])) })
	for _, s := range states {
		name := "`" + o.name + "`"
		if len(values[s]) > 0 {
			name += ": " + strings.Join(values[s], ", ")
		}
		fmt.Fprintf(p, "| %s | %s | %s |\n", name, s.is, s.by)
	}
}
