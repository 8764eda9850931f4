package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What failed is repeated; all tests of a package, if its process has ended before it ran all of them.
func TestWhatFailedIsRunAgain(t *testing.T) {
	again, err := filepath.Abs(repository + ".ci/again")
	require.NoError(t, err)
	const fails = "\nfunc TestB(t *testing.T) { t.Fatal(2) }\n"
	for name, c := range map[string]struct {
		folder, first, rest string // of the package; what its first test does the first time
		flaky               string // what is recorded; "": it fails
	}{
		"a failure":                        {"cmd/x", "t.Fatal(1)", "", "FLAKY: m/integration/cmd/x TestA\n"},
		"two failures":                     {"cmd/x", "t.Fatal(1)", fails, ""},
		"a failure of one chance":          {"x", "t.Fatal(1)", "", ""},
		"a panic":                          {"cmd/x", "panic(1)", "", "FLAKY: m/integration/cmd/x .*\n"},
		"a panic before a test that fails": {"cmd/x", "panic(1)", fails, ""},
	} {
		t.Run(name, func(t *testing.T) {
			module, cache := t.TempDir(), t.TempDir()
			folder := filepath.Join(module, c.folder)
			require.NoError(t, os.MkdirAll(folder, 0o700))
			for file, text := range map[string]string{
				filepath.Join(module, "go.mod"): "module m/integration\n",
				filepath.Join(folder, "x_test.go"): `package x
import ("os"; "testing")
func TestA(t *testing.T) {
	if os.Mkdir("once", 0o700) == nil { ` + c.first + ` }
}
` + c.rest,
			} {
				require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			}
			cmd := exec.CommandContext(t.Context(), again, "go", "test", "-count=1", "./...")
			cmd.Dir, cmd.Env = module, append(os.Environ(), "SQLBRAIN_CI_CACHE="+cache)
			out, err := cmd.CombinedOutput()
			flaky, _ := os.ReadFile(filepath.Join(cache, "flaky"))
			assert.Equal(t, c.flaky != "", err == nil, "%s", out)
			assert.Equal(t, c.flaky, string(flaky), "%s", out)
		})
	}
}
