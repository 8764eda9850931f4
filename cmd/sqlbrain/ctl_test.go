package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// ctl runs sqlbrain ctl in a process of its own, because etcdctl ends the process.
func ctl(t *testing.T, environ []string, args ...string) answer {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, append([]string{"ctl"}, args...)...)
	cmd.Env = append(append(os.Environ(), envRunMain+"=1"), environ...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	return answer{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// sqlbrain ctl is etcdctl. Its endpoint is the server's, unless a flag or a variable names one.
func TestCtl(t *testing.T) {
	n := startNode(t, "serve", "--data-dir="+t.TempDir())
	local := []string{"SQLBRAIN_LISTEN_CLIENT_URLS=" + n.endpoint}
	elsewhere := []string{"SQLBRAIN_LISTEN_CLIENT_URLS=http://127.0.0.1:1"}

	require.Equal(t, answer{stdout: "OK\n"}, ctl(t, local, "put", "greeting", "hello"))
	get := []string{"get", "greeting", "--print-value-only"}
	file := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte("listen-client-urls: "+n.endpoint), 0o600))
	for name, a := range map[string]answer{
		"flag":                   ctl(t, elsewhere, append(get, "--endpoints="+n.endpoint)...),
		"flag of two words":      ctl(t, elsewhere, append([]string{"--endpoints", n.endpoint}, get...)...),
		"variable":               ctl(t, append(elsewhere, "ETCDCTL_ENDPOINTS="+n.endpoint), get...),
		"file":                   ctl(t, []string{"SQLBRAIN_CONFIG_FILE=" + file}, get...),
		"beginning of a command": ctl(t, local, "ge", "greeting", "--print-value-only"),
	} {
		require.Equal(t, answer{stdout: "hello\n"}, a, name)
	}

	a := ctl(t, local, "endpoint", "status", "--write-out=json")
	var status []struct{ Endpoint string }
	require.NoError(t, json.Unmarshal([]byte(a.stdout), &status), a)
	require.Equal(t, []struct{ Endpoint string }{{n.endpoint}}, status, "etcdctl's default is not called as well")

	a = ctl(t, elsewhere, "get", "greeting", "--command-timeout=100ms", "--dial-timeout=100ms")
	require.Equal(t, 1, a.code)
	require.Contains(t, a.stderr, "127.0.0.1:1")
	require.Equal(t, 128, ctl(t, local, "get").code, "etcdctl's exit code for wrong arguments")
	require.Equal(t, 1, ctl(t, []string{"SQLBRAIN_NAME="}, "get", "greeting", "--no-such-flag").code)
	require.Contains(t, ctl(t, nil, "get", "--help").stdout, "etcdctl get [options] <key> [range_end]")
	require.Contains(t, ctl(t, []string{"SQLBRAIN_LISTEN_CLIENT_URLS=http://127.0.0.1:0"}, "get", "a").stderr,
		"name it with --endpoints")
}

// The first Ctrl-C ends a watch.
func TestCtlEndsBySignal(t *testing.T) {
	n := startNode(t, "serve", "--data-dir="+t.TempDir())
	p := startProcess(t, "ctl", "--endpoints="+n.endpoint, "watch", "greeting", "--rev=1")
	require.Zero(t, ctl(t, nil, "--endpoints="+n.endpoint, "put", "greeting", "hello").code)
	eventually.True(t, "the event is printed", func() bool { return strings.Contains(p.log.String(), "hello") })
	require.NoError(t, p.Process.Signal(syscall.SIGINT))
	require.ErrorContains(t, p.Wait(), "signal: interrupt")
}

func TestLocalEndpoint(t *testing.T) {
	for raw, want := range map[string]string{
		"http://127.0.0.1:2379": "http://127.0.0.1:2379",
		"https://0.0.0.0:2379":  "https://localhost:2379",
		"http://[::]:2379":      "http://localhost:2379",
		"https://n1:2379":       "https://n1:2379",
		"unix:///run/sqlbrain":  "unix:///run/sqlbrain",
	} {
		endpoint, err := localEndpoint(raw)
		require.NoError(t, err)
		require.Equal(t, want, endpoint)
	}
}

// Commands of sqlbrain are written in full, although etcdctl's need not be.
func TestCommandsAreNotAbbreviated(t *testing.T) {
	execute(t, "vers").requireRefused(t, `did you mean "version"?`)
}
