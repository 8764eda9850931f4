package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/internal/mutation"
	"github.com/sqlbrain/sqlbrain/integration/simulation/runner"
)

// Judge looks for a mutant: it is one column of the page.
type Judge interface {
	// Title is the name of the column.
	Title() string
	// Judge returns what finds the mutant m of the repository at root, planted by overlay, ""
	// if nothing does. The error says that it is not known.
	Judge(ctx context.Context, root, overlay string, m Mutant) (by string, err error)
}

// Judges are all judges by the names under which verdicts are recorded, in the order of
// the page.
var Judges = []struct {
	Name  string
	Judge Judge
}{
	{"unit", UnitTests{}},
	{simulation, Simulation{Seeds: 300}},
}

// simulation is the name of the judge Simulation.
const simulation = "simulation"

const (
	// importers is how many packages are tested in addition to the one that has the mutant:
	// those of the packages that import it that import least themselves.
	importers = 5
	// perPackage bounds the tests of one package. Tests that take longer do not end with the
	// mutant.
	perPackage = 4 * time.Minute
)

// UnitTests runs the unit tests of the package that has the mutant, and then those of some
// packages that import it, one after the other until one fails.
type UnitTests struct {
	OwnOnly bool   // test only the package that has the mutant
	Tests   string // run only the tests that match; "": all
}

// Title implements Judge.
func (UnitTests) Title() string { return "unit test" }

// Judge implements Judge.
func (u UnitTests) Judge(ctx context.Context, root, overlay string, m Mutant) (string, error) {
	packages, err := testedBy(ctx, root, m.Package)
	if err != nil {
		return "", err
	}
	if packages = packages[:min(len(packages), 1+importers)]; u.OwnOnly {
		packages = packages[:1]
	}
	if out, err := goCommand(ctx, root, "build", "-overlay="+overlay, "./"+m.Package); err != nil {
		return "", fmt.Errorf("the mutant does not compile: %w\n%s", err, out)
	}
	for _, pkg := range packages {
		out, err := goCommand(ctx, root, "test", "-overlay="+overlay, "-failfast", "-run="+u.Tests, fmt.Sprintf("-timeout=%s", perPackage), "./"+pkg)
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case err == nil:
			continue
		case !errors.As(err, &exit) || bytes.Contains(out, []byte("[build failed]")):
			return "", fmt.Errorf("go test ./%s: %w\n%s", pkg, err, out)
		}
		return pkg + " " + failure(out), nil
	}
	return "", nil
}

var running = regexp.MustCompile(`running tests:\s+(\S+)`)

// failure says which test failed according to the output of go test.
func failure(out []byte) string {
	if m := running.FindSubmatch(out); m != nil && bytes.Contains(out, []byte("panic: test timed out")) {
		return string(m[1]) + ", which does not end"
	}
	name := mutation.Failure(out)
	switch {
	case name != "":
		name, _, _ = strings.Cut(name, "/")
		return name
	case bytes.Contains(out, []byte("goleak")):
		return "leaked goroutines"
	default:
		return "a crash"
	}
}

// testedBy returns the packages whose tests judge a mutant of pkg: itself, and those that
// import it, by their tests too. Those that import less come first.
func testedBy(ctx context.Context, root, pkg string) ([]string, error) {
	out, err := goCommand(ctx, root, "list", "-json=ImportPath,Deps,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles,Module", "./...")
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, out)
	}
	type listed struct {
		ImportPath                                                          string
		Deps, Imports, TestImports, XTestImports, TestGoFiles, XTestGoFiles []string
		Module                                                              struct{ Path string }
	}
	var found []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		name := path.Join(p.Module.Path, pkg)
		imports := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 && (p.ImportPath == name || slices.Contains(imports, name)) {
			found = append(found, p)
		}
	}
	slices.SortStableFunc(found, func(a, b listed) int {
		if own := strings.HasSuffix(a.ImportPath, "/"+pkg); own != strings.HasSuffix(b.ImportPath, "/"+pkg) {
			if own {
				return -1
			}
			return 1
		}
		return len(a.Deps) - len(b.Deps)
	})
	names := make([]string, len(found))
	for i, p := range found {
		names[i] = strings.TrimPrefix(p.ImportPath, p.Module.Path+"/")
	}
	return names, nil
}

func goCommand(ctx context.Context, root string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	return cmd.CombinedOutput()
}

// Simulation simulates seeds of a cluster that has the mutant, from seed 1, until one is found
// wrong. The working directory must be in the module of this package.
type Simulation struct {
	Seeds uint64 // at most
}

// Title implements Judge.
func (Simulation) Title() string { return "simulation" }

// Judge implements Judge.
func (s Simulation) Judge(ctx context.Context, _, overlay string, _ Mutant) (by string, err error) {
	binary := filepath.Join(filepath.Dir(overlay), "plans.test")
	if err := runner.Build(ctx, binary, overlay); err != nil {
		return "", fmt.Errorf("the mutant does not compile: %w", err)
	}
	err = runner.Seeds(ctx, binary, 1, s.Seeds, 1, func(r runner.Report) bool {
		if len(r.Violations) == 0 {
			return true
		}
		by = fmt.Sprintf("seed %d", r.Seed)
		return false
	})
	return by, errors.Join(err, ctx.Err())
}
