package mutants

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

var root = filepath.Join("..", "..")

// TestMutantsApply fails when the code has changed so that a mutant can no longer be planted.
func TestMutantsApply(t *testing.T) {
	names, left := make(map[string]bool), len(unseen)
	for _, m := range All {
		if names[m.Name] {
			t.Errorf("%q is the name of several mutants", m.Name)
		}
		names[m.Name] = true
		if _, found := unseen[m.Name]; found {
			left--
		}
		if m.Invariant < 1 || m.Invariant > 8 {
			t.Errorf("%s: there is no invariant %d", m.Name, m.Invariant)
		}
		if _, err := m.File(root); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
	if left != 0 {
		t.Errorf("%d of the mutants that simulations cannot find do not exist", left)
	}
}

// TestMutantsCompile builds each mutant, with SQLBRAIN_LONG=1.
func TestMutantsCompile(t *testing.T) {
	if !harness.Long() {
		t.Skip("building each mutant takes minutes; set SQLBRAIN_LONG=1")
	}
	for _, m := range All {
		overlay, err := m.Plant(root, t.TempDir())
		if err != nil {
			t.Error(err)
			continue
		}
		if out, err := goCommand(t.Context(), root, "build", "-overlay="+overlay, "./"+m.Package); err != nil {
			t.Errorf("%s: %v\n%s", m.Name, err, out)
		}
	}
}

// TestPage fails if docs/mutants.md is not what was recorded.
func TestPage(t *testing.T) {
	v, err := ReadVerdicts(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range All {
		if _, ok := v[m.Name]["unit"]; !ok {
			t.Errorf("no verdict on %q; run make mutants MUTANT=%q", m.Name, m.Name)
		}
	}
	want, err := v.Page(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, PageFile))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/mutants.md is not what was recorded; write it with make mutants MUTANT=none")
	}
}
