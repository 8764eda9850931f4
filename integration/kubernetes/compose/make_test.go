package compose

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// `make up` waits for services of the profile that it names, and every service of the profile is one of them or
// started for them.
func TestMakeUpStartsTheProfile(t *testing.T) {
	for _, profile := range []string{"tidb", "mysql", "sqlite"} {
		out, err := exec.CommandContext(t.Context(), "make", "--no-print-directory", "--directory=../../..", "--dry-run",
			"up",
			"DB="+profile, "MONITORING=1").Output()
		require.NoError(t, err)
		lines := strings.Split(string(out), "\n")
		at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "docker compose ") })
		require.NotEqual(t, -1, at, "%s", out)
		options, waited, found := strings.Cut(lines[at], " --wait ")
		require.True(t, found)
		require.Equal(t, "docker compose --profile "+profile+" --profile monitoring up --build --detach", options)
		p := &project{t: t, name: projectPrefix + "config"}
		services := p.config("--profile", profile, "--profile", "monitoring").Services
		started := make(map[string]bool)
		var start func(name string)
		start = func(name string) {
			require.Contains(t, services, name)
			started[name] = true
			for dependency := range services[name].DependsOn {
				start(dependency)
			}
		}
		for _, name := range strings.Fields(waited) {
			start(name)
		}
		require.ElementsMatch(t, slices.Collect(maps.Keys(services)), slices.Collect(maps.Keys(started)))
	}
	out, err := exec.CommandContext(t.Context(), "make", "--directory=../../..", "up", "DB=postgres").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "DB is tidb, mysql or sqlite")
}
