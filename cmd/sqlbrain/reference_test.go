package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/page"
)

// TestSettingsPage: docs/reference/settings.md has every setting, with the texts and in the groups of --help.
func TestSettingsPage(t *testing.T) {
	fs := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	config.New().Bind(fs)
	var b strings.Builder
	b.WriteString(`# Settings

Each setting is a flag of ` + "`sqlbrain serve`" + `, an environment variable, and a key of the YAML file that
` + "`--config-file`" + ` names. The key is the flag without its dashes. A flag takes precedence over the variable, and the variable
over the file. A list is one text with commas, or a YAML list. An empty variable counts as not set.

Settings that etcd has under the same name mean the same, except where the text says otherwise, and etcd's variable sets them
too (` + "`ETCD_NAME`" + `), unless sqlbrain's does. A flag or variable of etcd that sqlbrain does not have is refused with the reason.
A variable that begins with ` + "`SQLBRAIN_`" + ` and is likely to be misspelt is refused with the nearest name; others are named in the
log, such as those that Kubernetes sets for a Service named sqlbrain.

` + "```yaml\nname: n1\nlisten-client-urls: [\"http://0.0.0.0:2379\"]\nwatch-progress-notify-interval: 5m\n```\n")
	group := ""
	fs.VisitAll(func(f *pflag.Flag) {
		if title := f.Annotations[config.GroupOf][0]; title != group {
			group = title
			fmt.Fprintf(&b, "\n## %s\n", group)
		}
		value, help := pflag.UnquoteUsage(f)
		fmt.Fprintf(&b, "\n### %s\n\n%s.\n\n", f.Name, strings.ToUpper(help[:1])+markdown(help[1:]))
		fmt.Fprintf(&b, "- Variable: `%s`\n", config.EnvName(f.Name))
		if value == "" {
			value = "true or false"
		}
		fmt.Fprintf(&b, "- Value: `%s`\n", value)
		if def := strings.Trim(f.DefValue, "[]"); def != "" {
			fmt.Fprintf(&b, "- Default: `%s`\n", def)
		}
	})
	page.Check(t, "../..", "settings.md", b.String())
}

// TestCommandsPage: docs/reference/commands.md has every command, with the texts of --help.
func TestCommandsPage(t *testing.T) {
	p := &program{settings: config.New(), stdout: io.Discard, stderr: io.Discard}
	var b strings.Builder
	b.WriteString("# Commands\n\n`sqlbrain COMMAND --help` prints these texts. Flags without a text here are " +
		"[settings](settings.md).\n")
	settings := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	config.New().Bind(settings)
	for _, cmd := range p.newRootCommand().Commands() {
		describe(&b, cmd, settings)
	}
	page.Check(t, "../..", "commands.md", b.String())
}

func describe(b *strings.Builder, cmd *cobra.Command, settings *pflag.FlagSet) {
	if cmd.Hidden || cmd.Long == "" && !cmd.HasAvailableLocalFlags() {
		return // the text of its parent says all
	}
	fmt.Fprintf(b, "\n## %s\n\n", cmd.CommandPath())
	for _, paragraph := range strings.Split(cmp.Or(cmd.Long, cmd.Short+"."), "\n\n") {
		paragraph = strings.Trim(paragraph, "\n")
		if strings.Contains(paragraph, "\n  ") {
			fmt.Fprintf(b, "```text\n%s\n```\n", paragraph)
		} else {
			b.WriteString(markdown(paragraph) + "\n\n")
		}
	}
	if cmd.Example != "" {
		fmt.Fprintf(b, "```sh\n%s\n```\n", unindent(cmd.Example))
	}
	var shared []string
	own := "\n| flag | default | meaning |\n|---|---|---|\n"
	rows := 0
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		switch s := settings.Lookup(f.Name); {
		case f.Name == "help" || f.Hidden:
		case s != nil && s.Usage == f.Usage:
			shared = append(shared, fmt.Sprintf("[`--%s`](settings.md#%s)", f.Name, f.Name))
		default:
			value, help := pflag.UnquoteUsage(f)
			def := ""
			if text := strings.Trim(f.DefValue, "[]"); text != "" {
				def = "`" + text + "`"
			}
			own += fmt.Sprintf("| `%s` | %s | %s |\n", strings.ReplaceAll(strings.TrimSpace("--"+f.Name+" "+value), "|", "\\|"),
				def, markdown(help))
			rows++
		}
	})
	if rows > 0 {
		b.WriteString(own)
	}
	switch {
	case len(shared) > 20:
		b.WriteString("\nIt takes all [settings](settings.md).\n")
	case len(shared) > 0:
		b.WriteString("\nIt takes these settings: " + strings.Join(shared, ", ") + ".\n")
	}
	for _, sub := range cmd.Commands() {
		describe(b, sub, settings)
	}
}

// markdown escapes what Markdown or the site would not show as it is. The text of the program names defaults like
// <DATA-DIR> and flags like --name, which are literal.
func markdown(text string) string {
	return strings.NewReplacer("<", "&lt;", "*", "\\*", "_", "\\_", "|", "\\|").Replace(text)
}

func unindent(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

// TestPathsPage: docs/reference/http.md has the paths of the client port, each of which is served, and every check of
// /readyz.
func TestPathsPage(t *testing.T) {
	paths := []struct{ path, needs, answer string }{
		{"/metrics", "", "[metrics](metrics.md) in Prometheus' format"},
		{"/health", "", "as etcd: `{\"health\":\"true\",\"reason\":\"\"}`; `?serializable=true` does not ask the leader"},
		{"/livez", "", "200 or 503; [checks](#checks) of the process alone"},
		{"/readyz", "", "200 or 503; all [checks](#checks)"},
		{"/version", "", "versions of etcd's API, as JSON"},
		{"/v3/", "`--enable-grpc-gateway`, on by default",
			"etcd's RPCs as JSON with POST; [each path and its differences](../compatibility.md#http). `/v3beta/` is the same"},
		{"/ui/", "`--console`", "the [console](../console.md)"},
		{"/debug/pprof/", "`--enable-pprof`", "Go's profiles"},
	}
	var b strings.Builder
	b.WriteString(`# HTTP paths

A client URL serves gRPC and these paths on one port. ` + "`--listen-metrics-urls`" + ` serves metrics, health and profiles only.
[Security](../../SECURITY.md) says what each of them reveals.

| path | setting | answer |
|---|---|---|
`)
	n := startNode(t, "serve", "--data-dir="+t.TempDir(), "--console", "--enable-pprof")
	require.Equal(t, http.StatusNotFound, get(t, n.endpoint+"/no-such-path"))
	for _, p := range paths {
		path := p.path
		if path == "/v3/" {
			path = "/v3/kv/range" // GET is not allowed there, but it exists
		}
		require.NotEqual(t, http.StatusNotFound, get(t, n.endpoint+path), path)
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", p.path, p.needs, p.answer)
	}
	b.WriteString("\n## Checks\n\n`/readyz/NAME` is one check alone, `?exclude=NAME` leaves one out, `?verbose` lists " +
		"all.\n[Monitoring](../monitoring.md#check-readiness-and-liveness) says when each of them fails.\n\n")
	for _, kind := range []string{"livez", "readyz"} {
		verbose := body(t, n.endpoint+"/"+kind+"?verbose")
		fmt.Fprintf(&b, "- `/%s`:", kind)
		for _, line := range strings.Split(verbose, "\n") {
			if name, ok := strings.CutPrefix(line, "[+]"); ok {
				fmt.Fprintf(&b, " `%s`", strings.TrimSuffix(name, " ok"))
			}
		}
		b.WriteString("\n")
	}
	page.Check(t, "../..", "http.md", b.String())
}
