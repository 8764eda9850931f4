package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
)

// helpOfAll returns the help of every command, by its path.
func helpOfAll(t *testing.T) map[string]string {
	all := map[string]string{}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		var out bytes.Buffer
		cmd.SetOut(&out)
		require.NoError(t, cmd.Help())
		all[cmd.CommandPath()] = out.String()
		for _, child := range cmd.Commands() {
			visit(child)
		}
	}
	visit((&program{settings: config.New()}).newRootCommand())
	return all
}

func TestHelpFitsTheScreen(t *testing.T) {
	all := helpOfAll(t)
	require.Greater(t, len(all), 10)
	for path, help := range all {
		for line := range strings.Lines(help) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), helpWidth, "%s: %s", path, line)
		}
	}
}

func TestFlagsAreInGroups(t *testing.T) {
	all := helpOfAll(t)
	last := 0
	for _, title := range []string{"Member:", "Database:", "TLS:", "Election:", "Tracing:"} {
		at := strings.Index(all["sqlbrain serve"], "\n"+title+"\n")
		require.Greater(t, at, last, title)
		last = at
	}
	require.NotContains(t, all["sqlbrain doctor"], "\nDatabase:\n", "a command with few flags has one group")
	require.Contains(t, all["sqlbrain doctor"], "\nFlags:\n")
}

func TestShellsCompleteValues(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"serve", "--log-level", ""}, "info\ndebug\nwarn\nerror\n:4\n"},
		{[]string{"--datastore-password-from", ""}, "aws\ngoogle\nazure\n:4\n"},
		{[]string{"doctor", "-o", ""}, "table\njson\n:4\n"},
		{[]string{"migrate", "up", "--config-file", ""}, ":0\n"},
		{[]string{"serve", "--data-dir", ""}, ":16\n"},
		{[]string{"serve", "--name", ""}, ":4\n"},
	} {
		a := succeed(t, append([]string{cobra.ShellCompNoDescRequestCmd}, c.args...)...)
		require.Equal(t, c.want, a.stdout, "%q", c.args)
	}
}
