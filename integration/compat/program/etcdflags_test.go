package program

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

var flagOfHelp = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9-]+)`)

// flagsOf returns the flags that a program's help names.
func flagsOf(t *testing.T, program string, args ...string) (names []string) {
	t.Helper()
	out := harness.Run(t, time.Minute, "", program, args...)
	require.Zero(t, out.Code, out.Stderr)
	for _, m := range flagOfHelp.FindAllStringSubmatch(out.Stdout+out.Stderr, -1) {
		names = append(names, m[1])
	}
	require.Greater(t, len(names), 50, "%s%s", out.Stdout, out.Stderr)
	return names
}

// Every flag of etcd is one of sqlbrain too, or the error says what to do instead.
func TestFlagsOfEtcdAreKnown(t *testing.T) {
	own := flagsOf(t, harness.Sqlbrain(t), "serve", "--help")
	for _, name := range flagsOf(t, harness.Etcd(t), "--help") {
		if slices.Contains(own, name) {
			continue
		}
		out := harness.Run(t, time.Minute, "", harness.Sqlbrain(t), "serve", "--"+name+"=x")
		require.NotZero(t, out.Code, name)
		require.Contains(t, out.Stderr, "--"+name+" is a flag of etcd that sqlbrain does not have: ", name)
		_, advice, _ := strings.Cut(out.Stderr, "does not have: ")
		for _, m := range regexp.MustCompile(`--([a-z0-9-]+)`).FindAllStringSubmatch(strings.ReplaceAll(advice,
			"serve --help", ""), -1) {
			require.Contains(t, own, m[1], "advice for --%s", name)
		}
	}
}
