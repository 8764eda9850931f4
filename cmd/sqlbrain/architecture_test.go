package main

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/sqlbrain/sqlbrain/"

// TestImportsPointDownTheTableOfPackages compares the imports of all packages with the
// order of the table in ARCHITECTURE.md. A folder that the table does not name belongs to
// the row of the folder above it; one that has no such row is missing in the table.
func TestImportsPointDownTheTableOfPackages(t *testing.T) {
	page, err := os.ReadFile("../../ARCHITECTURE.md")
	require.NoError(t, err)
	rows := make(map[string]int)
	for i, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		folder := ""
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			name := m[1]
			if !strings.Contains(name, "/") && folder != "" {
				name = folder + "/" + name // as in `sqlstore/sqldb`, `mysql`
			}
			folder = path.Dir(name)
			rows[name] = i
		}
	}
	rowOf := func(pkg string) (row int, ok bool) {
		for ; pkg != "."; pkg = path.Dir(pkg) {
			if row, ok = rows[pkg]; ok {
				return row, true
			}
		}
		return 0, false
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}",
		module+"...").Output()
	require.NoError(t, err)
	packages := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		pkg := strings.TrimPrefix(fields[0], module)
		from, ok := rowOf(pkg)
		if !ok {
			t.Errorf("%s is not in the table", pkg)
		}
		packages++
		for _, imported := range fields[1:] {
			name, ours := strings.CutPrefix(imported, module)
			if to, ok := rowOf(name); ours && ok && to < from {
				t.Errorf("%s imports %s, which is above it in the table", pkg, name)
			}
		}
	}
	require.Greater(t, packages, 30)
}

// TestNamedTestsExist looks for the tests that keep the invariants, and those of the faults that etcd had.
func TestNamedTestsExist(t *testing.T) {
	for page, least := range map[string]int{"ARCHITECTURE.md": 16, "integration/README.md": 16} {
		text, err := os.ReadFile("../../" + page)
		require.NoError(t, err)
		named := regexp.MustCompile("`([a-z/]+)` (Test\\w+)").FindAllStringSubmatch(string(text), -1)
		require.GreaterOrEqual(t, len(named), least, page)
		for _, m := range named {
			files, err := filepath.Glob("../../" + m[1] + "/*_test.go")
			require.NoError(t, err)
			found := slices.ContainsFunc(files, func(file string) bool {
				source, err := os.ReadFile(file)
				return err == nil && strings.Contains(string(source), "\nfunc "+m[2]+"(t *testing.T) {")
			})
			require.True(t, found, "%s names %s of %s", page, m[2], m[1])
		}
	}
}
