package programs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/gotest"
)

// Tests returns the built tests of one of Kubernetes' own packages, to be run with
// the environment and what the caller adds to it. The first call ever builds them.
func Tests(t testing.TB, pkg string) gotest.Program {
	t.Helper()
	one.Lock()
	defer one.Unlock()
	p, err := tests(t.Context(), pkg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func tests(ctx context.Context, pkg string) (gotest.Program, error) {
	module, err := moduleDir(ctx, "kubernetes")
	if err != nil {
		return gotest.Program{}, err
	}
	dir, err := run(ctx, module, "list", "-f", "{{.Dir}}", pkg)
	if err != nil {
		return gotest.Program{}, err
	}
	modules, err := run(ctx, module, "env", "GOMODCACHE")
	if err != nil {
		return gotest.Program{}, err
	}
	keep, err := cacheDir(module)
	if err != nil {
		return gotest.Program{}, err
	}
	p := gotest.Program{
		Path: filepath.Join(keep, strings.ReplaceAll(pkg, "/", "-")+".test"), Dir: dir,
		// Where the sources are that trimmed paths begin at: the tests look for files there.
		Env: append(os.Environ(), "TEST_SRCDIR="+modules, "TEST_WORKSPACE=."),
	}
	if _, err := os.Stat(p.Path); err == nil {
		return p, nil
	}
	return p, buildTests(ctx, pkg, module, p.Path)
}

// buildTests is build for a package's tests.
func buildTests(ctx context.Context, pkg, module, path string) error {
	ctx, cancel := context.WithTimeout(ctx, buildWait)
	defer cancel()
	unfinished, err := os.MkdirTemp(filepath.Dir(path), "unfinished-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(unfinished) //nolint:errcheck // a leftover is harmless
	out := filepath.Join(unfinished, filepath.Base(path))
	if _, err := run(ctx, module, "test", "-c", "-vet=off", "-trimpath", "-ldflags", "-s -w", "-o", out, pkg); err != nil {
		return fmt.Errorf("build the tests of %s: %w", pkg, err)
	}
	return os.Rename(out, path)
}
