package config

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// withCommand loads settings with a command that prints the password.
func withCommand(t *testing.T, command string) *Settings {
	t.Helper()
	s := New()
	s.Datastore, s.PasswordCommand = "mysql://root@db/k8s", command
	require.NoError(t, s.Load(nil))
	require.NotNil(t, s.asked)
	return s
}

func TestPasswordCommandGivesThePassword(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	s := withCommand(t, "echo x >> "+runs+"; printf 'ge heim\\n'")
	ask := s.url.Password
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			password, err := ask(context.Background())
			if err != nil || password != "ge heim" {
				t.Errorf("%q, %v", password, err)
			}
		})
	}
	all.Wait()
	count := func() int {
		text, err := os.ReadFile(runs)
		require.NoError(t, err)
		return strings.Count(string(text), "x")
	}
	require.Equal(t, 1, count(), "connections that are made at once share a run")
	s.asked.last.Until = time.Now()
	_, err := ask(context.Background())
	require.NoError(t, err)
	require.Equal(t, 2, count(), "what was printed is used for a while only")

	for _, form := range []string{"ge heim", "ge%20heim", "ge+heim"} {
		require.NotContains(t, s.Redact("the server said: "+form), form)
	}
	s.origins["datastore-password-command"] = "--datastore-password-command"
	require.NotContains(t, strings.Join(s.Describe(), " "), "heim", "the command may hold it")
}

func TestFailedPasswordCommandsAreReported(t *testing.T) {
	for _, c := range []struct{ command, want string }{
		{"echo geheim; echo 'no credentials for geheim' >&2; exit 3", "exit status 3: no credentials for xxxxx"},
		{"/does/not/exist", "exit status 127"},
		{"true", "printed nothing"},
		{"echo 'not logged in' >&2", "printed nothing: not logged in"},
		{"printf 'geheim\\ngeheim\\n'", "more than one line"},
		{"head -c 100000 /dev/zero | tr '\\0' g", "more than 65536 bytes"},
		{"echo geheim; exec sleep 60", "did not end within"},
	} {
		s := withCommand(t, c.command)
		patient := passwordCommand{command: c.command, timeout: time.Minute}
		if strings.Contains(c.command, "sleep") {
			patient.timeout = 200 * time.Millisecond
		}
		s.asked.ask = patient.print
		_, err := s.url.Password(context.Background())
		require.ErrorContains(t, err, "--datastore-password-command: ", c.command)
		require.ErrorContains(t, err, c.want, c.command)
		require.NotContains(t, err.Error(), "geheim", c.command)
	}
}

// A connection that is given up does not wait for the command, and the next one
// runs it again.
func TestPasswordCommandEndsWithItsConnection(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "again")
	s := withCommand(t, "if [ -e "+marker+" ]; then echo geheim; else touch "+marker+"; exec sleep 60; fi")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := s.url.Password(ctx)
		ended <- err
	}()
	eventually.True(t, "the command to run", func() bool { _, err := os.Stat(marker); return err == nil })
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	password, err := s.url.Password(context.Background())
	require.NoError(t, err)
	require.Equal(t, "geheim", password)
}

// TestPasswordCommandLeavesNoProcesses, whether the shell is killed or ends before what it started.
func TestPasswordCommandLeavesNoProcesses(t *testing.T) {
	for _, end := range []string{"wait", "echo geheim", "exit 1"} {
		file := filepath.Join(t.TempDir(), "pid")
		c := passwordCommand{command: "sleep 300 & echo $! > " + file + "; " + end, timeout: 3 * time.Second}
		_, err := c.run(t.Context())
		require.Error(t, err)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		child, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		eventually.True(t, "the process to end", func() bool {
			state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
			return err != nil || strings.Contains(string(state), ") Z ")
		})
	}
}

// TestPasswordFromACloud asks a metadata service that stands in for Google's.
func TestPasswordFromACloud(t *testing.T) {
	var asked atomic.Int32
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"access_token": "token%d", "expires_in": 3600}`, asked.Add(1))
	}))
	defer metadata.Close()
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(metadata.URL, "http://"))
	s := New()
	s.Datastore, s.PasswordFrom = "mysql://root@db/k8s?tls=true", "google"
	require.NoError(t, s.Load(nil))
	for range 3 {
		password, err := s.url.Password(t.Context())
		require.NoError(t, err)
		require.Equal(t, "token1", password, "a token serves until it expires")
	}
	require.NotContains(t, s.Redact("denied for token1"), "token1")
	s.asked.last.Until = time.Now()
	password, err := s.url.Password(t.Context())
	require.NoError(t, err)
	require.Equal(t, "token2", password)

	s.asked.last.Until = time.Now()
	metadata.Close()
	_, err = s.url.Password(t.Context())
	require.ErrorContains(t, err, "--datastore-password-from: google: ")
}
