package overlay

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

func TestPatchesFitThisGo(t *testing.T) {
	if _, err := Write(t.TempDir()); err != nil {
		t.Fatal(err)
	}
}

// TestUnknownGoIsRefused changes each patched file in one place that a patch needs.
func TestUnknownGoIsRefused(t *testing.T) {
	root, version, err := goroot()
	if err != nil {
		t.Fatal(err)
	}
	known := fstest.MapFS{}
	for _, p := range patches {
		b, err := fs.ReadFile(os.DirFS(filepath.Join(root, "src")), p.file)
		if err != nil {
			t.Fatal(err)
		}
		known[p.file] = &fstest.MapFile{Data: b}
	}
	if _, err := patched(known, version); err != nil {
		t.Fatal(err)
	}
	for name, file := range known {
		data := file.Data
		file.Data = []byte("package other\n")
		if _, err := patched(known, "go1.99"); err == nil || !strings.Contains(err.Error(), "go1.99 is not known") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s without its content: %v", name, err)
		}
		file.Data = data
	}
}
