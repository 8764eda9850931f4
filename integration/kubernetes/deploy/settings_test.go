package deploy

import (
	"bufio"
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

var flagInHelp = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9-]+)`)

// variable returns the variable of the environment that is a setting.
func variable(flag string) string {
	return "SQLBRAIN_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// known returns the variables that are settings, by what the binary says of itself.
func known(t *testing.T) map[string]bool {
	help, err := exec.Command(harness.Sqlbrain(t), "--help").Output()
	require.NoError(t, err)
	variables := make(map[string]bool)
	for _, flag := range flagInHelp.FindAllSubmatch(help, -1) {
		variables[variable(string(flag[1]))] = true
	}
	require.Contains(t, variables, variable("datastore"))
	return variables
}

var (
	assignment = regexp.MustCompile(`^(?:(SQLBRAIN_[A-Z_]+)=|([a-z-]+): )\S+$`)
	comment    = regexp.MustCompile(`^#( .*)?$`)
)

// readSettings returns the settings of a file for systemd or kustomize, as variables. Those that are commented out are
// settings too, because users may enable them.
func readSettings(t *testing.T, file string) []string {
	text, err := os.ReadFile(folder + file)
	require.NoError(t, err)
	var names []string
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if line == "" || comment.MatchString(line) {
			continue
		}
		found := assignment.FindStringSubmatch(strings.TrimPrefix(line, "#"))
		if assert.NotNil(t, found, "%s: %q is neither a setting nor a comment", file, line) {
			names = append(names, cmp.Or(found[1], variable(found[2])))
		}
	}
	require.NotEmpty(t, names)
	return names
}

func TestSettingsExist(t *testing.T) {
	variables := known(t)
	for _, file := range []string{"systemd/sqlbrain.yaml", "kubernetes/sqlbrain.env", "kubernetes-tls/sqlbrain.env"} {
		for _, name := range readSettings(t, file) {
			assert.Contains(t, variables, name, file)
		}
	}
}

// TestImagesAreBuiltFromDigests: a release image names its base images by digest, or the build fails.
func TestImagesAreBuiltFromDigests(t *testing.T) {
	text, err := os.ReadFile("../../../Dockerfile")
	require.NoError(t, err)
	bases := regexp.MustCompile(`(?m)^FROM (?:--\S+ )*(\S+)`).FindAllSubmatch(text, -1)
	require.NotEmpty(t, bases)
	for _, base := range bases {
		assert.Contains(t, []string{"scratch", "${GO_IMAGE}", "${KINE_BASE}", "build"}, string(base[1]))
	}
	checks := regexp.MustCompile(`(?m)^RUN (test -z "\$PINNED".*)$`).FindAllSubmatch(text, -1)
	require.Len(t, checks, 2)
	digest := "@sha256:" + strings.Repeat("0a", 32)
	for _, tt := range []struct {
		pinned, image string
		passes        bool
	}{
		{"", "golang:1.26", true},
		{"1", "golang:1.26", false},
		{"1", "golang@sha256:0a", false},
		{"1", "golang" + digest + "0", false},
		{"1", "golang:1.26" + digest, true},
		{"1", "registry.example:5000/golang" + digest, true},
	} {
		for i, variable := range []string{"GO_IMAGE", "KINE_BASE"} {
			c := exec.Command("/bin/sh", "-c", string(checks[i][1]))
			c.Env = []string{"PATH=" + os.Getenv("PATH"), "PINNED=" + tt.pinned, variable + "=" + tt.image}
			out, err := c.CombinedOutput()
			assert.Equal(t, tt.passes, err == nil, "%+v: %v %s", tt, err, out)
		}
	}
}

func TestUnit(t *testing.T) {
	text, err := os.ReadFile(folder + "systemd/sqlbrain.service")
	require.NoError(t, err)
	assert.NotContains(t, string(text), "=SQLBRAIN_", "it would take precedence over the file")
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	// It demands that the program is there.
	path := harness.Sqlbrain(t)
	const installed = "ExecStart=sqlbrain "
	require.Contains(t, string(text), "\n"+installed+"serve --config-file ${CREDENTIALS_DIRECTORY}/sqlbrain.yaml\n")
	unit := filepath.Join(t.TempDir(), "sqlbrain.service")
	require.NoError(t, os.WriteFile(unit, bytes.ReplaceAll(text, []byte(installed), []byte("ExecStart="+path+" ")), 0o600))
	out, err := exec.Command(analyze, "verify", "--man=no", unit).CombinedOutput()
	assert.NoError(t, err, "%s", out)
	assert.NotContains(t, string(out), unit, "what it does not understand it only warns of")
}
