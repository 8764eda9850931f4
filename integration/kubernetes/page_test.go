package kubernetes

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/version"

	"github.com/sqlbrain/sqlbrain/integration/internal/gotest"
)

// envPage set to "write" makes TestAPIServerStorage write its block of the page.
const envPage = "SQLBRAIN_KUBERNETES_PAGE"

// pageFile is the page, from here; the block lies between the two marks.
var pageFile = filepath.Join("..", "..", "docs", "kubernetes.md")

const (
	blockBegins = "<!-- Written by \"make k8s-storage\". Do not edit. -->\n"
	blockEnds   = "<!-- End of what \"make k8s-storage\" wrote. -->\n"
)

// summary is what became of the whole set on all subjects.
type summary struct {
	subjects []subject
	results  map[string]map[string]tally // by subject and package
	remarks  []string
}

// tally counts the tests of a package on a subject.
type tally struct{ passed, failed, skipped int }

func newSummary() *summary { return &summary{results: map[string]map[string]tally{}} }

// add counts the outcomes of a package's tests on a subject, whose database server
// is of the version.
func (s *summary) add(on subject, version, pkg string, outcomes []*gotest.Outcome) {
	if s.results[on.name] == nil {
		s.results[on.name] = map[string]tally{}
		s.subjects = append(s.subjects, on)
		if version != "" && !on.follower {
			s.remarks = append(s.remarks, fmt.Sprintf("%s is %s.", on.title, version))
		}
	}
	var n tally
	for _, o := range outcomes {
		reason, excepted := exceptions[on.name][o.Name]
		switch {
		case o.Result == "pass":
			n.passed++
		case o.Result == "skip":
			n.skipped++
			s.remarks = append(s.remarks, fmt.Sprintf("%s skips itself on %s: %s", o.Name, on.title, o.Reason()))
		case excepted:
			n.skipped++
			s.remarks = append(s.remarks, fmt.Sprintf("%s does not pass on %s: %s", o.Name, on.title, reason))
		default:
			n.failed++
		}
	}
	s.results[on.name][pkg] = n
}

// block is the summary as Markdown.
func (s *summary) block() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s, written for etcd %s. Passed, of all; each test on a database of its own:\n\n| |", module, moduleVersion, version.Version)
	for _, on := range s.subjects {
		fmt.Fprintf(&b, " %s |", on.title)
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---|", len(s.subjects)))
	sums := make([]tally, len(s.subjects))
	for _, p := range packages {
		fmt.Fprintf(&b, "| `%s` |", p.path)
		for i, on := range s.subjects {
			n := s.results[on.name][p.path]
			n.write(&b)
			sums[i].passed += n.passed
			sums[i].failed += n.failed
			sums[i].skipped += n.skipped
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprint(&b, "| together |")
	for _, n := range sums {
		n.write(&b)
	}
	fmt.Fprintln(&b)
	if len(s.remarks) > 0 {
		fmt.Fprintln(&b)
	}
	for _, r := range s.remarks {
		fmt.Fprintf(&b, "- %s\n", r)
	}
	return b.Bytes()
}

func (n tally) write(b *bytes.Buffer) {
	fmt.Fprintf(b, " %d of %d", n.passed, n.passed+n.failed+n.skipped)
	if n.failed > 0 {
		fmt.Fprintf(b, ", **%d failed**", n.failed)
	}
	if n.skipped > 0 {
		fmt.Fprintf(b, ", %d skipped", n.skipped)
	}
	fmt.Fprint(b, " |")
}

// writeBlock puts the block into the page, in place of the one there is.
func writeBlock(block []byte) error {
	page, err := os.ReadFile(pageFile)
	if err != nil {
		return err
	}
	before, _, after, err := cutBlock(page)
	if err != nil {
		return err
	}
	return os.WriteFile(pageFile, slices.Concat(before, []byte(blockBegins), block, []byte(blockEnds), after), 0o644)
}

func cutBlock(page []byte) (before, block, after []byte, err error) {
	before, rest, begins := bytes.Cut(page, []byte(blockBegins))
	block, after, ends := bytes.Cut(rest, []byte(blockEnds))
	if !begins || !ends {
		return nil, nil, nil, fmt.Errorf("%s has no block of results", pageFile)
	}
	return before, block, after, nil
}
