package server

import (
	"log/slog"
	"regexp"
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// A put that is slow says where its time went, and is counted.
func TestSlowRequestIsLoggedWithItsSteps(t *testing.T) {
	var out eventually.Log
	registry := prometheus.NewRegistry()
	s := startReplica(t, func(c *Config) {
		c.Logger, c.SlowRequest, c.Registry = slog.New(slog.NewJSONHandler(&out, nil)), time.Nanosecond, registry
	})
	_, err := newClient(t, s).Put(testContext(t), "thekey", "thevalue")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^.*"method":"/etcdserverpb.KV/Put".*$`).FindString(out.String())
	for _, want := range []string{
		`"level":"WARN"`, `"msg":"apply request took too long"`, `"took":"[0-9.]+(µs|ms|s)"`, `"expected-duration":"1ns"`,
		"thekey", `"response":"size:`,
		`"steps":{"queued":"[0-9.]+(ns|µs|ms|s)","evaluating":"[^"]+","committing":"[^"]+"}`,
	} {
		require.Regexp(t, want, line)
	}
	require.NotContains(t, line, "thevalue")
	require.Equal(t, 1.0, testutil.ToFloat64(s.slow))
	_, err = newClient(t, s).Compact(testContext(t), 99)
	require.Error(t, err)
	require.Regexp(t, `took too long.*"method":"/etcdserverpb.KV/Compact".*"error":"etcdserver: mvcc: required revision is a future revision"`, out.String())
}
