package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// Packages of the programs. Go's build cache makes all but the first build of
// each a matter of seconds.
const (
	modSqlbrain = "github.com/sqlbrain/sqlbrain"
	pkgSqlbrain = modSqlbrain + "/cmd/sqlbrain"
	pkgEtcd     = "go.etcd.io/etcd/server/v3"
	pkgEtcdctl  = "go.etcd.io/etcd/etcdctl/v3"
	pkgEtcdutl  = "go.etcd.io/etcd/etcdutl/v3"
	pkgKine     = "github.com/k3s-io/kine"
	pkgVersity  = "github.com/versity/versitygw/cmd/versitygw"
)

const thisModule = modSqlbrain + "/integration"

// buildWait bounds a build from empty caches on a busy machine.
const buildWait = 45 * time.Minute

// EnvPrograms names a directory: a program that is there is used as it is, and not
// built.
const EnvPrograms = "SQLBRAIN_INTEGRATION_PROGRAMS"

// built holds the programs of this test run.
var built struct {
	sync.Mutex
	dir      string
	programs map[string]result
}

type result struct {
	path string
	err  error
}

// Sqlbrain, Etcd, Etcdctl and Etcdutl return the path of the program, which the first
// call in a test run builds.
func Sqlbrain(t testing.TB) string { t.Helper(); return program(t, "sqlbrain", pkgSqlbrain) }
func Etcd(t testing.TB) string     { t.Helper(); return program(t, "etcd", pkgEtcd) }
func Etcdctl(t testing.TB) string  { t.Helper(); return program(t, "etcdctl", pkgEtcdctl) }
func Etcdutl(t testing.TB) string  { t.Helper(); return program(t, "etcdutl", pkgEtcdutl) }

// Kine returns the path of kine as it is released, with its SQLite. It skips the test if there is no C compiler.
func Kine(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		enginetest.Need(t, fmt.Errorf("kine's SQLite needs a C compiler: %w", err), exec.ErrNotFound)
	}
	return program(t, "kine", pkgKine)
}

// VersityGW returns the path of an S3 server over a directory, Versity's gateway.
func VersityGW(t testing.TB) string { t.Helper(); return program(t, "versitygw", pkgVersity) }

func program(t testing.TB, name, pkg string) string {
	t.Helper()
	return once(t, name, func() (string, error) { return build(name, pkg) })
}

func once(t testing.TB, name string, build func() (string, error)) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	r, done := built.programs[name]
	if !done {
		r.path, r.err = build()
		if built.programs == nil {
			built.programs = make(map[string]result)
		}
		built.programs[name] = r
	}
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.path
}

func build(name, pkg string) (string, error) {
	if dir := os.Getenv(EnvPrograms); dir != "" {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := target(name)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, pkg)
	// In their own modules, so that they have the dependencies their users get.
	switch pkg {
	case pkgSqlbrain:
		cmd.Dir, err = moduleDir(ctx, modSqlbrain)
	case pkgKine, pkgVersity:
		cmd.Dir, err = moduleDir(ctx, thisModule)
		cmd.Dir = filepath.Join(cmd.Dir, "programs", name)
		if pkg == pkgKine {
			cmd.Env = append(cmd.Environ(), "CGO_ENABLED=1")
		}
	}
	if err != nil {
		return "", err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}

// target returns where a program is built; built is held.
func target(name string) (path string, err error) {
	if built.dir == "" {
		built.dir, err = os.MkdirTemp("", "sqlbrain-integration-")
	}
	return filepath.Join(built.dir, name), err
}

func moduleDir(ctx context.Context, module string) (string, error) {
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", module, err)
	}
	return strings.TrimSpace(string(dir)), nil
}

// Download returns the directory of a module in the module cache, after downloading it if it is not there. go list -m
// names no directory then. The module's version is the one that dir's module requires, unless module ends with another.
func Download(ctx context.Context, dir, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var answer struct{ Dir, Error string }
	if jerr := json.Unmarshal(out, &answer); err == nil {
		err = jerr
	}
	if err != nil || answer.Dir == "" {
		return "", fmt.Errorf("download %s: %v\n%s%s", module, err, answer.Error, stderr.Bytes())
	}
	return answer.Dir, nil
}

// Main returns a runner of m's tests that removes the built programs and the shared database servers after them.
func Main(m interface{ Run() int }) interface{ Run() int } { return runner{enginetest.Main(m)} }

// TestMain runs the tests of a package by Main, and checks that they leave no goroutine.
func TestMain(m interface{ Run() int }, options ...goleak.Option) {
	eventually.NoLeaks(Main(m), options...)
}

type runner struct{ inner interface{ Run() int } }

func (r runner) Run() int {
	code := r.inner.Run()
	built.Lock()
	defer built.Unlock()
	if built.dir != "" {
		if err := os.RemoveAll(built.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			fmt.Fprintln(os.Stderr, "harness:", err)
			code = max(code, 1)
		}
	}
	return code
}
