package kubernetes

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path"
	"path/filepath"

	"github.com/sqlbrain/sqlbrain/integration/internal/gotest"
)

// program is where the tests of a package of the module in dir are built.
func program(dir, pkg string) string { return filepath.Join(dir, path.Base(pkg)+".test") }

// compile builds the tests of a package of the module in dir. Paths are trimmed, so
// that the next copy of the module finds most of it in the build cache.
func compile(ctx context.Context, dir, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-trimpath", "-o", program(dir, pkg), "./"+pkg)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// runTests runs the tests of a package of the module in dir that match run, and
// names them package.Test.
func runTests(ctx context.Context, dir, pkg, run string, env []string, progress io.Writer) ([]*gotest.Outcome, error) {
	outcomes, err := gotest.Program{Path: program(dir, pkg), Dir: filepath.Join(dir, pkg), Env: env}.Run(ctx, run,
		progress)
	for _, o := range outcomes {
		o.Name = path.Base(pkg) + "." + o.Name
	}
	return outcomes, err
}
