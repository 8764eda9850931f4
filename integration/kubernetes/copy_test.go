package kubernetes

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// The module under test. v0.38 needs Go 1.27.
const (
	module        = "k8s.io/apiserver"
	moduleVersion = "v0.37.2"
)

const testServer = "pkg/storage/etcd3/testserver"

// replacements are the folders whose Go files are copied, by where to below testServer.
var replacements = map[string]string{
	"":        "testdata/testserver",
	"process": "../../sqlstore/enginetest/process", // which imports the standard library only
}

// copyModule returns the directory of a copy of the module, whose tests run on
// sqlbrain if replaced.
func copyModule(ctx context.Context, t *testing.T, replaced bool) string {
	t.Helper()
	// Outside of any module, which would have to require it.
	from, err := harness.Download(ctx, t.TempDir(), module+"@"+moduleVersion)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "apiserver")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if replaced {
		if err := replaceServer(filepath.Join(to, testServer)); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// replaceServer puts the files of replacements into the package in dir, in place of its RunEtcd.
func replaceServer(dir string) error {
	original := filepath.Join(dir, "test_server.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return err
	}
	const old, other = "\nfunc RunEtcd(", "\nfunc runEmbeddedEtcd("
	if n := bytes.Count(source, []byte(old)); n != 1 {
		return fmt.Errorf("%s declares RunEtcd %d times: has the module changed?", original, n)
	}
	if err := os.WriteFile(original, bytes.Replace(source, []byte(old), []byte(other), 1), 0o600); err != nil {
		return err
	}
	for below, from := range replacements {
		to := filepath.Join(dir, below)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		files, err := filepath.Glob(filepath.Join(filepath.FromSlash(from), "*.go"))
		if err != nil {
			return err
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			source, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(to, filepath.Base(f)), source, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}
