// Package overlay writes a build overlay (go build -overlay) that replaces a few files of Go's runtime by changed copies.
// The copies are made from the GOROOT in use. Every change must find the text that it replaces exactly as often as
// expected, so that an unknown version of Go gives an error and not another program.
package overlay

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A patch replaces text in a file of GOROOT/src.
type patch struct {
	file  string
	count int // how often old must occur
	old   string
	new   string
}

// ErrUnknownGo means that the patches do not fit the Go in use.
var ErrUnknownGo = errors.New("the Go in use is not known to the patches of package overlay")

//go:embed _added/runtime/seeded.go
var runtimeFile string

//go:embed _added/maps/seeded.go
var mapsFile string

// Write writes the changed files and overlay.json to a folder in dir, and returns the path of overlay.json. The content is the same
// for the same GOROOT, so that Go's build cache keeps what was built with it. The working directory must be in the
// module of this package.
func Write(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	root, version, err := goroot()
	if err != nil {
		return "", err
	}
	hooks, err := output("go", "list", "-f", "{{.Dir}}", "github.com/sqlbrain/sqlbrain/integration/simulation/deterministic")
	if err != nil {
		return "", err
	}
	src := filepath.Join(root, "src")
	files, err := patched(os.DirFS(src), version)
	if err != nil {
		return "", err
	}
	// Checkouts that share dir may differ in the patches, and differ in where this module is.
	hash := sha256.New()
	fmt.Fprintln(hash, hooks)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintln(hash, name, len(files[name]))
		fmt.Fprint(hash, files[name])
	}
	dir = filepath.Join(dir, fmt.Sprintf("%.8x", hash.Sum(nil)))
	replace := map[string]string{}
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := writeFile(path, text); err != nil {
			return "", err
		}
		replace[filepath.Join(src, filepath.FromSlash(name))] = path
	}
	replace[filepath.Join(hooks, "hooks.go")] = filepath.Join(hooks, "_seeded", "hooks.go")
	b, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, writeFile(path, string(b)+"\n")
}

// patched returns the changed and the added files by their paths below GOROOT/src.
func patched(src fs.FS, version string) (map[string]string, error) {
	files := map[string]string{
		"runtime/seeded.go":               runtimeFile,
		"internal/runtime/maps/seeded.go": mapsFile,
	}
	for _, p := range patches {
		text, ok := files[p.file]
		if !ok {
			b, err := fs.ReadFile(src, p.file)
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		if n := strings.Count(text, p.old); n != p.count {
			return nil, fmt.Errorf("%w: %s of %s contains this text %d times instead of %d:\n%s",
				ErrUnknownGo, p.file, version, n, p.count, p.old)
		}
		files[p.file] = strings.ReplaceAll(text, p.old, p.new)
	}
	return files, nil
}

// BuildTest builds the tests of a package with the overlay, like go test -c. The files with
// more overlays replace other files than those of the runtime.
func BuildTest(ctx context.Context, pkg, binary string, more ...string) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	path, err := Write(filepath.Join(cache, "sqlbrain-overlay"))
	if err != nil {
		return err
	}
	if len(more) > 0 {
		dir, err := os.MkdirTemp("", "overlay")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if path, err = merge(filepath.Join(dir, "overlay.json"), append(more, path)); err != nil {
			return err
		}
	}
	// make lint runs vet. With the overlay, go test would run it on every package that is linked.
	out, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-w", "-overlay="+path, "-o", binary, pkg).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go test -c -overlay: %w\n%s", err, out)
	}
	return nil
}

// merge writes overlays to one file, and returns its path.
func merge(to string, overlays []string) (string, error) {
	merged := map[string]map[string]string{"Replace": {}}
	for _, path := range overlays {
		b, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		var o struct{ Replace map[string]string }
		if err := json.Unmarshal(b, &o); err != nil {
			return "", fmt.Errorf("overlay %s: %w", path, err)
		}
		for file, by := range o.Replace {
			if other, ok := merged["Replace"][file]; ok {
				return "", fmt.Errorf("overlay %s: %s is replaced by %s and by %s", path, file, other, by)
			}
			merged["Replace"][file] = by
		}
	}
	b, err := json.Marshal(merged)
	if err != nil {
		return "", err
	}
	return to, os.WriteFile(to, b, 0o644)
}

// writeFile leaves a file alone that has the text already.
func writeFile(path, text string) error {
	if b, err := os.ReadFile(path); err == nil && string(b) == text {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// Another process may be reading the file.
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.WriteString(text); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func goroot() (root, version string, err error) {
	out, err := output("go", "env", "GOROOT", "GOVERSION")
	if err != nil {
		return "", "", err
	}
	root, version, _ = strings.Cut(out, "\n")
	return root, version, nil
}

func output(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
