package programs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

const thisModule = "github.com/sqlbrain/sqlbrain/integration"

// buildWait bounds the build of one program; the first one compiles most of
// Kubernetes.
const buildWait = time.Hour

// source is where a program comes from.
type source struct {
	module string // directory under programs/
	pkg    string
	// version is the module whose version is linked into the program, as Kubernetes
	// is built that does not know its own; empty where it does.
	version string
}

func ofKubernetes(name string) source {
	return source{"kubernetes", "k8s.io/kubernetes/cmd/" + name, "k8s.io/kubernetes"}
}

var sources = map[string]source{
	"kube-apiserver":          ofKubernetes("kube-apiserver"),
	"kube-controller-manager": ofKubernetes("kube-controller-manager"),
	"kube-scheduler":          ofKubernetes("kube-scheduler"),
	"kubectl":                 ofKubernetes("kubectl"),
	"kubeadm":                 ofKubernetes("kubeadm"),
	"kwok":                    {"kwok", "sigs.k8s.io/kwok/cmd/kwok", ""},
}

// EnvKubernetes set to 1 lets tests build and run Kubernetes, as make kubernetes SUITE=e2e does.
const EnvKubernetes = "SQLBRAIN_K8S"

// NeedsKubernetes skips a test that runs Kubernetes' programs, unless EnvKubernetes is 1:
// their first build takes 20 minutes, and the tests take longer.
func NeedsKubernetes(t testing.TB) {
	t.Helper()
	if os.Getenv(EnvKubernetes) != "1" {
		t.Skip("runs Kubernetes itself: make kubernetes SUITE=e2e, or " + EnvKubernetes + "=1")
	}
}

// one builds at a time: the compiler uses all cores by itself.
var one sync.Mutex

// Path returns the path of kube-apiserver, kube-controller-manager,
// kube-scheduler, kubectl, kubeadm or kwok. The first call ever builds the program,
// which takes minutes.
func Path(t testing.TB, name string) string {
	t.Helper()
	one.Lock()
	defer one.Unlock()
	path, err := find(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func find(ctx context.Context, name string) (string, error) {
	if dir := os.Getenv(harness.EnvPrograms); dir != "" {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	s, known := sources[name]
	if !known {
		return "", fmt.Errorf("no program %q", name)
	}
	module, err := moduleDir(ctx, s.module)
	if err != nil {
		return "", err
	}
	keep, err := cacheDir(module)
	if err != nil {
		return "", err
	}
	path := filepath.Join(keep, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, build(ctx, s, module, path)
}

// moduleDir returns the directory of a module under programs/.
func moduleDir(ctx context.Context, name string) (string, error) {
	root, err := run(ctx, ".", "list", "-m", "-f", "{{.Dir}}", thisModule)
	return filepath.Join(root, "programs", name), err
}

// cacheDir returns a directory that belongs to what the module in dir requires and
// to the compiler: what is in it never changes.
func cacheDir(dir string) (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		sum.Write(content)
	}
	keep := filepath.Join(user, "sqlbrain-k8s", hex.EncodeToString(sum.Sum(nil)[:8]))
	return keep, os.MkdirAll(keep, 0o755)
}

// build puts the program at path atomically, because other test runs may look for
// it at the same time.
func build(ctx context.Context, s source, module, path string) error {
	ctx, cancel := context.WithTimeout(ctx, buildWait)
	defer cancel()
	flags := "-s -w"
	if s.version != "" {
		version, err := versionOf(module, s.version)
		if err != nil {
			return err
		}
		flags += " -X k8s.io/component-base/version.gitVersion=" + version
	}
	unfinished, err := os.MkdirTemp(filepath.Dir(path), "unfinished-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(unfinished) //nolint:errcheck // a leftover is harmless
	out := filepath.Join(unfinished, filepath.Base(path))
	if _, err := run(ctx, module, "build", "-trimpath", "-ldflags", flags, "-o", out, s.pkg); err != nil {
		return fmt.Errorf("build %s: %w", filepath.Base(path), err)
	}
	return os.Rename(out, path)
}

func versionOf(module, required string) (string, error) {
	mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(required) + ` (v\S+)`).FindSubmatch(mod)
	if found == nil {
		return "", fmt.Errorf("%s does not require %s", module, required)
	}
	return string(found[1]), nil
}

func run(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}

// KubernetesVersion is the version of the programs of Kubernetes, as v1.36.3.
func KubernetesVersion(t testing.TB) string {
	t.Helper()
	module, err := moduleDir(t.Context(), "kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	version, err := versionOf(module, "k8s.io/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	return version
}
