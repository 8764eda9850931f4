// Package programs builds Kubernetes' programs and tests and keeps them between runs.
package programs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/gotest"
	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

var wanted = flag.Bool("k8s", false, "build and run Kubernetes, as make kubernetes SUITE=e2e does")

// NeedsKubernetes skips a test that runs Kubernetes' programs, unless the flag -k8s is set:
// their first build takes 20 minutes, and the tests take longer.
func NeedsKubernetes(t testing.TB) {
	t.Helper()
	if !*wanted {
		t.Skip("runs Kubernetes itself: make kubernetes SUITE=e2e, or the flag -k8s")
	}
}

// Path returns the path of one of Kubernetes' programs. The first call ever builds it, which takes minutes.
func Path(t testing.TB, name string) string {
	t.Helper()
	if dir := os.Getenv(harness.EnvPrograms); dir != "" {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	// Kubernetes does not know its own version unless it is linked in.
	flags := "-s -w -X k8s.io/component-base/version.gitVersion=" + KubernetesVersion(t)
	return built(t, name, "k8s.io/kubernetes/cmd/"+name, "build", "-trimpath", "-ldflags", flags)
}

// Tests returns the built tests of one of Kubernetes' own packages, to be run with
// the environment and what the caller adds to it. The first call ever builds them.
func Tests(t testing.TB, pkg string) gotest.Program {
	t.Helper()
	return gotest.Program{
		Path: built(t, strings.ReplaceAll(pkg, "/", "-")+".test", pkg, "test", "-c", "-vet=off", "-trimpath", "-ldflags",
			"-s -w"),
		Dir: run(t, "list", "-f", "{{.Dir}}", pkg),
		// Where the sources are that trimmed paths begin at: the tests look for files there.
		Env: append(os.Environ(), "TEST_SRCDIR="+run(t, "env", "GOMODCACHE"), "TEST_WORKSPACE=."),
	}
}

// KubernetesVersion is the version of the programs of Kubernetes, as v1.36.3.
func KubernetesVersion(t testing.TB) string {
	t.Helper()
	return run(t, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
}

// one builds at a time: the compiler uses all cores by itself.
var one sync.Mutex

// built returns the path of what a go command with these arguments makes of a package. It is built once, in a
// directory that belongs to what the module requires and to the compiler, and is put there atomically, because other
// test runs may look for it at the same time.
func built(t testing.TB, name, pkg string, args ...string) string {
	t.Helper()
	one.Lock()
	defer one.Unlock()
	user, err := os.UserCacheDir()
	require.NoError(t, err)
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(module(t), name))
		require.NoError(t, err)
		sum.Write(content)
	}
	keep := filepath.Join(user, "sqlbrain-k8s", hex.EncodeToString(sum.Sum(nil)[:8]))
	path := filepath.Join(keep, name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	require.NoError(t, os.MkdirAll(keep, 0o755))
	unfinished, err := os.MkdirTemp(keep, "unfinished-")
	require.NoError(t, err)
	defer os.RemoveAll(unfinished) //nolint:errcheck // a leftover is harmless
	out := filepath.Join(unfinished, name)
	run(t, append(args, "-o", out, pkg)...)
	require.NoError(t, os.Rename(out, path))
	return path
}

// module returns the directory of the module that pins Kubernetes.
func module(t testing.TB) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}").Output()
	require.NoError(t, err)
	return filepath.Join(strings.TrimSpace(string(out)), "programs", "kubernetes")
}

// run runs a go command in that module and returns what it prints.
func run(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = module(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go %s: %s", args[0], stderr.Bytes())
	return strings.TrimSpace(string(out))
}
