package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/tracing/collector"
)

func TestSpansAreSentBeforeTheServerStops(t *testing.T) {
	onEngines(t, "SELECT, INSERT, UPDATE, DELETE, CREATE", func(t *testing.T, raw string) {
		spans := collector.Start(t)
		n := startNode(t, "--datastore", raw, "--name=n1", "--enable-distributed-tracing",
			"--distributed-tracing-address="+spans.Address(),
			"--distributed-tracing-sampling-rate=1000000")
		n.put(t, "a", "b")
		require.Zero(t, n.stop())
		all, _ := spans.Spans()
		puts := collector.Named(all, "etcdserverpb.KV/Put")
		require.Len(t, puts, 1)
		require.Equal(t, "sqlbrain", puts[0].Resource["service.name"])
		require.Equal(t, "n1", puts[0].Resource["service.instance.id"])
		commits := append(collector.Named(all, "sql commit_tx"), collector.Named(all, "sql commit_single")...)
		require.NotEmpty(t, commits)
		require.Equal(t, puts[0].GetTraceId(), commits[0].GetTraceId())
	})
}

func TestMissingCollectorDoesNotStopTheServer(t *testing.T) {
	n := startNode(t, "--datastore", sqliteURL(t), "--enable-distributed-tracing",
		"--distributed-tracing-address=127.0.0.1:1",
		"--distributed-tracing-sampling-rate=1000000", "--distributed-tracing-service-name=s",
		"--distributed-tracing-instance-id=i",
		"--stop-timeout=100ms")
	n.put(t, "a", "b")
	require.Zero(t, n.stop())
	require.Contains(t, n.log.String(), "spans")
}
