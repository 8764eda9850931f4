package overlay

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

func TestPatchesFitThisGo(t *testing.T) {
	_, err := Write(t.TempDir())
	enginetest.Need(t, err, ErrUnknownGo)
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
	_, err = patched(known, version)
	enginetest.Need(t, err, ErrUnknownGo)
	for name, file := range known {
		data := file.Data
		file.Data = []byte("package other\n")
		if _, err := patched(known, "go1.99"); err == nil || !errors.Is(err, ErrUnknownGo) || !strings.Contains(err.Error(), "go1.99") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s without its content: %v", name, err)
		}
		file.Data = data
	}
}

func TestOverlaysAreMerged(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a, b := write("a", `{"Replace": {"/src/x.go": "/tmp/x.go"}}`), write("b", `{"Replace": {"/src/y.go": "/tmp/y.go"}}`)
	to, err := merge(filepath.Join(dir, "to"), []string{a, b})
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(to)
	if want := `{"Replace":{"/src/x.go":"/tmp/x.go","/src/y.go":"/tmp/y.go"}}`; err != nil || string(got) != want {
		t.Errorf("%s %v, want %s", got, err, want)
	}
	for _, overlays := range [][]string{{a, a}, {a, write("c", "none")}, {filepath.Join(dir, "missing")}} {
		if _, err := merge(to, overlays); err == nil {
			t.Errorf("no error for %v", overlays)
		}
	}
}
