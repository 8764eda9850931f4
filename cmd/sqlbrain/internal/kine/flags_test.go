package kine

import (
	"os"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
)

// translate returns the settings of a command line, and the notes on it.
func translate(t *testing.T, environ []string, args ...string) (*config.Settings, []string, error) {
	t.Helper()
	f, fs := New(), pflag.NewFlagSet("kine", pflag.ContinueOnError)
	f.Bind(fs)
	require.NoError(t, fs.Parse(f.Arguments(args)))
	s := config.New()
	if err := f.Load(environ); err != nil {
		return nil, nil, err
	}
	notes, err := f.Apply(s)
	if err == nil {
		err = s.Load(environ)
	}
	return s, notes, err
}

func TestDefaults(t *testing.T) {
	s, notes, err := translate(t, nil)
	require.NoError(t, err)
	require.Empty(t, notes)
	require.Equal(t, "./db/state.db", s.URL().Path)
	require.Equal(t, []string{"http://0.0.0.0:2379"}, s.Server.ListenClientURLs)
	require.Equal(t, []string{"http://0.0.0.0:8080"}, s.Server.ListenMetricsURLs)
	require.Equal(t, 5*time.Second, s.Replica.Watch.ProgressInterval)
	require.Equal(t, 5*time.Minute, s.Replica.AutoCompaction.Retention)
	require.EqualValues(t, 1000, s.Replica.AutoCompaction.Keep)
	require.Equal(t, 2*time.Minute, s.Store.MaxIdleTime)
	require.False(t, s.LogJSON)
	require.False(t, s.Given("listen-peer-urls"))
}

func TestEveryFlag(t *testing.T) {
	certificate := "x"
	s, notes, err := translate(t, []string{"SQLBRAIN_QUOTA_BACKEND_BYTES=7", "SQLBRAIN_LOG_LEVEL=error"},
		"-listen-address=127.0.0.1:1", "-endpoint", "mysql://u:p@tcp(h)/d", "--skip-verify=false", "--log-format=json",
		"--metrics-bind-address=127.0.0.1:2",
		"--server-cert-file="+certificate, "--server-key-file=k", "--trusted-ca-file=ca", "--datastore-max-idle-connections",
		"-10",
		"--datastore-max-open-connections=9", "--datastore-connection-max-lifetime=1h",
		"--datastore-connection-max-idle-time=3m",
		"--slow-sql-threshold=2s", "--slow-sql-warning-threshold=3s", "--metrics-enable-profiling",
		"--metrics-ignore-tls-config",
		"--watch-progress-notify-interval=6s", "--emulated-etcd-version=3.5.13", "--compact-interval=10m",
		"--compact-interval-jitter=5",
		"--compact-timeout=9s", "--compact-min-retain=50", "--compact-batch-size=200", "--poll-batch-size=10",
		"--peer-bind-address=10.0.0.1:2380", "--peer-advertise-address=10.0.0.2:2380", "--s3-bucket=b", "--debug")
	require.NoError(t, err)
	require.Equal(t, []string{"https://127.0.0.1:1"}, s.Server.ListenClientURLs)
	require.Equal(t, []string{"http://127.0.0.1:2"}, s.Server.ListenMetricsURLs)
	require.Equal(t, []string{"https://10.0.0.1:2380"}, s.Server.PeerURLs)
	require.Equal(t, []string{"https://10.0.0.2:2380"}, s.Node.PeerURLs)
	require.Equal(t, "x k ca", s.Server.TLS.CertFile+" "+s.Server.TLS.KeyFile+" "+s.Server.TLS.TrustedCAFile)
	require.True(t, s.Server.TLS.ClientCertAuth && s.LogJSON && s.Server.EnablePprof)
	require.Equal(t, 9, s.Store.MaxOpenConns)
	require.Equal(t, time.Hour, s.Store.MaxLifetime)
	require.Equal(t, 3*time.Minute, s.Store.MaxIdleTime)
	require.Equal(t, 6*time.Second, s.Replica.Watch.ProgressInterval)
	require.Equal(t, 10*time.Minute, s.Replica.AutoCompaction.Retention)
	require.EqualValues(t, 50, s.Replica.AutoCompaction.Keep)
	require.EqualValues(t, 7, s.Replica.QuotaBytes)
	require.Equal(t, "DEBUG", s.LogLevel.String(), "a flag comes before a variable")
	for _, name := range []string{
		"--datastore-max-idle-connections", "--slow-sql-threshold", "--slow-sql-warning-threshold", "--emulated-etcd-version",
		"--compact-interval-jitter", "--compact-timeout", "--compact-batch-size", "--poll-batch-size", "--s3-bucket",
	} {
		require.Contains(t, notes[0], name+" has no effect: ")
		notes = notes[1:]
	}
	require.Empty(t, notes)
}

func TestVariables(t *testing.T) {
	host, err := os.Hostname()
	require.NoError(t, err)
	s, notes, err := translate(t, []string{
		"KINE_ENDPOINT=mysql://u:p@tcp(h)/d", "KINE_LISTEN_ADDRESS=unix://a/kine.sock", "KINE_METRICS_BIND_ADDRESS=0",
		"KINE_COMPACT_INTERVAL=0", "KINE_DEBUG=true",
		"KINE_POLL_BATCH_SIZE=7", "KINE_SCHEMA_MIGRATION=2", "KINE_CA_FILE=", "AWS_REGION=eu-central-1",
		"SQLBRAIN_DATASTORE=sqlite://x",
	}, "--compact-min-retain=0")
	require.NoError(t, err)
	require.Equal(t, "h:3306", s.URL().Address)
	require.Equal(t, []string{"unix://a/kine.sock"}, s.Server.ListenClientURLs)
	require.Empty(t, s.Server.ListenMetricsURLs)
	require.Zero(t, s.Replica.AutoCompaction.Retention)
	require.Zero(t, s.Replica.AutoCompaction.Keep)
	require.Equal(t, host+" unix://a/kine.sock", s.Node.Name)
	require.Len(t, notes, 2, "AWS' variables are not kine's alone")
	require.Contains(t, notes[0], "KINE_POLL_BATCH_SIZE")
	require.Contains(t, notes[1], "KINE_SCHEMA_MIGRATION")

	s, _, err = translate(t, []string{"SQLBRAIN_NAME=n1", "SQLBRAIN_AUTO_COMPACTION_RETENTION=1h"})
	require.NoError(t, err)
	require.Equal(t, "n1", s.Node.Name)
	require.Equal(t, time.Hour, s.Replica.AutoCompaction.Retention, "a variable comes before kine's default")
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ arg, env, want string }{
		{"--endpoint=postgres://u:Geheim@h/d", "", "--endpoint: postgres:// is not supported"},
		{"", "KINE_ENDPOINT=postgres://u:Geheim@h/d", "KINE_ENDPOINT: postgres://"},
		{"--listen-address=nowhere", "", "--listen-address: must be host:port"},
		{"--listen-address=unix://", "", "--listen-address: unix:// needs a path"},
		{"--listen-address=:99999", "", "--listen-address"},
		{"--log-format=xml", "", "--log-format: must be plain or json"},
		{"--metrics-bind-address=unix:///x", "", "--metrics-bind-address"},
		{"--server-cert-file=x", "", "--server-key-file is needed"},
		{"--server-key-file=x", "", "--server-cert-file is needed"},
		{"--trusted-ca-file=x", "", "--trusted-ca-file: --server-cert-file"},
		{"--watch-progress-notify-interval=0", "", "--watch-progress-notify-interval: must be above 0"},
		{"--compact-min-retain=-1", "", "--compact-min-retain: must not be negative"},
		{"--peer-bind-address=:2380", "", "--peer-advertise-address"},
		{"--peer-bind-address=0.0.0.0:2380", "", "--peer-advertise-address"},
		{"--peer-advertise-address=h:2380", "", "--peer-bind-address"},
		{"--peer-bind-address=x", "", "--peer-bind-address: must be host:port"},
		{"", "KINE_COMPACT_INTERVAL=often", "KINE_COMPACT_INTERVAL: invalid value"},
		{"--datastore-max-open-connections=99999999", "", "--datastore-max-open-connections: 99999999 is too large"},
	} {
		var args, environ []string
		if c.arg != "" {
			args = append(args, c.arg)
		}
		if c.env != "" {
			environ = append(environ, c.env)
		}
		_, _, err := translate(t, environ, args...)
		require.ErrorContains(t, err, c.want, c)
		require.NotContains(t, err.Error(), "Geheim")
	}
}
