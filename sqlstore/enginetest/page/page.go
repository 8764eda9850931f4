// Package page compares pages of the documentation that tests write with what they would write now.
package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// envWrite set to "write" makes Check write pages instead of comparing them.
const envWrite = "SQLBRAIN_REFERENCE"

// Check fails t if the file of the repository does not have this content. file is relative to docs/reference, root is
// the path of the repository from the test's folder.
func Check(t *testing.T, root, file, content string) {
	t.Helper()
	path := filepath.Join(root, "docs", "reference", file)
	content = "<!-- Written by \"make reference\". Do not edit. -->\n" + content
	if os.Getenv(envWrite) == "write" {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o666))
		return
	}
	is, err := os.ReadFile(path)
	require.NoError(t, err)
	if string(is) != content {
		t.Fatalf("docs/reference/%s is not up to date: write it with make reference\n%s", file,
			difference(string(is), content))
	}
}

// difference returns the first line that differs.
func difference(is, want string) string {
	a, b := strings.Split(is, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return "- " + a[i] + "\n+ " + b[i]
		}
	}
	return "one of them is longer"
}

// Cell returns text as the content of a table's cell.
func Cell(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;", "{{", "{&#8203;{").Replace(text)
}
