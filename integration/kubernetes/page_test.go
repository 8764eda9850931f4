package kubernetes

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/version"

	"github.com/sqlbrain/sqlbrain/integration/internal/gotest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// envPage set to "write" makes TestAPIServerStorage write what it finds into the
// page: a row for each subject that all tests were run on.
const envPage = "SQLBRAIN_KUBERNETES_PAGE"

// pageFile is the page, from here; the block lies between the two marks.
var pageFile = filepath.Join("..", "..", "docs", "kubernetes.md")

const (
	blockBegins = "<!-- Written by \"make k8s-storage\". Do not edit. -->\n"
	blockEnds   = "<!-- End of what \"make k8s-storage\" wrote. -->\n"
)

// tally counts tests.
type tally struct{ passed, failed, skipped int }

func (n tally) String() string {
	s := fmt.Sprintf("%d of %d", n.passed, n.passed+n.failed+n.skipped)
	if n.failed > 0 {
		s += fmt.Sprintf(", **%d failed**", n.failed)
	}
	if n.skipped > 0 {
		s += fmt.Sprintf(", %d skipped", n.skipped)
	}
	return s
}

// result is what became of all tests on a subject.
type result struct {
	on       subject
	packages []tally // as packages
	remarks  []string
}

// add counts the outcomes of the next package's tests.
func (r *result) add(outcomes []*gotest.Outcome) {
	var n tally
	for _, o := range outcomes {
		reason, excepted := exceptions[r.on.name][o.Name]
		switch {
		case o.Result == "pass":
			n.passed++
		case o.Result == "skip":
			n.skipped++
			r.remarks = append(r.remarks, fmt.Sprintf("%s skips itself: %s", o.Name, o.Reason()))
		case excepted:
			n.skipped++
			r.remarks = append(r.remarks, fmt.Sprintf("%s does not pass: %s", o.Name, reason))
		default:
			n.failed++
		}
	}
	r.packages = append(r.packages, n)
}

func (r *result) row() string {
	var all tally
	row := rowBegins(r.on)
	for _, n := range r.packages {
		row += fmt.Sprintf(" %s |", n)
		all.passed += n.passed
		all.failed += n.failed
		all.skipped += n.skipped
	}
	return row + fmt.Sprintf(" %s | %s |\n", all, strings.Join(r.remarks, "; "))
}

func rowBegins(on subject) string { return "| " + on.title + " |" }

// heading is the block up to the rows.
func heading() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Passed, of the tests of %s %s, which was made for etcd %s:\n\n| on |", module, moduleVersion,
		version.Version)
	for _, p := range packages {
		fmt.Fprintf(&b, " `%s` |", p.path)
	}
	fmt.Fprintf(&b, " together | remarks |\n|---|%s---|---|\n", strings.Repeat("---|", len(packages)))
	return b.String()
}

// writeRow puts the row of a subject into the page; rows of others stay if they
// are of the same tests.
func writeRow(r *result) error {
	page, err := os.ReadFile(pageFile)
	if err != nil {
		return err
	}
	before, block, after, err := cutBlock(page)
	if err != nil {
		return err
	}
	rows, same := strings.CutPrefix(string(block), heading())
	if !same {
		rows = ""
	}
	var b strings.Builder
	b.WriteString(heading())
	for _, s := range sqlbrainSubjects() {
		if s.name == r.on.name {
			b.WriteString(r.row())
		} else {
			b.WriteString(rowOf(rows, s))
		}
	}
	return os.WriteFile(pageFile, slices.Concat(before, []byte(blockBegins), []byte(b.String()), []byte(blockEnds),
		after), 0o644)
}

// rowOf finds the row of a subject; "" if there is none.
func rowOf(rows string, s subject) string {
	for l := range strings.Lines(rows) {
		if strings.HasPrefix(l, rowBegins(s)) {
			return l
		}
	}
	return ""
}

func cutBlock(page []byte) (before, block, after []byte, err error) {
	before, rest, begins := bytes.Cut(page, []byte(blockBegins))
	block, after, ends := bytes.Cut(rest, []byte(blockEnds))
	if !begins || !ends {
		return nil, nil, nil, fmt.Errorf("%s has no block of results", pageFile)
	}
	return before, block, after, nil
}

// TestPage: docs/kubernetes.md describes the current tests: the same version, every
// subject with all tests, every exception, and no failure.
func TestPage(t *testing.T) {
	if enginetest.OnTiDB() {
		t.Skip("the page does not cover TiDB")
	}
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	_, block, _, err := cutBlock(page)
	if err != nil {
		t.Fatal(err)
	}
	rows, same := strings.CutPrefix(string(block), heading())
	if !same {
		t.Errorf("the page describes other tests: write it with make k8s-storage")
	}
	for _, s := range sqlbrainSubjects() {
		checkRow(t, rowOf(rows, s), s)
	}
}

func checkRow(t *testing.T, row string, s subject) {
	t.Helper()
	total, cells := 0, strings.Split(row, " | ")
	if len(cells) != len(packages)+3 {
		t.Errorf("no row of %s: write it with make k8s-storage", s.title)
		return
	}
	for i, p := range packages {
		total += p.tests
		checkCell(t, s, cells[i+1], p.tests)
	}
	checkCell(t, s, cells[len(packages)+1], total)
	for name, reason := range exceptions[s.name] {
		if want := fmt.Sprintf("%s does not pass: %s", name, reason); !strings.Contains(row, want) {
			t.Errorf("%s: %q is missing", s.title, want)
		}
	}
}

func checkCell(t *testing.T, s subject, cell string, tests int) {
	t.Helper()
	if count, _, _ := strings.Cut(cell, ","); !strings.HasSuffix(count, fmt.Sprintf(" of %d", tests)) ||
		strings.Contains(cell, "failed") {
		t.Errorf("%s: %q, there are %d tests", s.title, cell, tests)
	}
}
