package tracing_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/sqlbrain/sqlbrain/server/tracing"
	"github.com/sqlbrain/sqlbrain/server/tracing/collector"
)

func dialOptions(t *tracing.Tracing) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithStatsHandler(t.Client())}
}

func TestNilTracingIsOff(t *testing.T) {
	var off *tracing.Tracing
	require.Nil(t, off.Tracer())
	require.Nil(t, off.Server())
	require.Nil(t, off.Client())
	require.NoError(t, off.Close(t.Context()))
}

// What was recorded a moment ago arrives when the process stops, not only after the
// seconds in which spans are gathered.
func TestCloseSendsTheRemainingSpans(t *testing.T) {
	spans := collector.Start(t)
	tr, err := tracing.Open(t.Context(), tracing.Config{Address: spans.Address(), Service: "s",
		SamplingRate: tracing.PerMillion})
	require.NoError(t, err)
	_, span := tr.Tracer().Start(t.Context(), "last")
	span.End()
	require.NoError(t, tr.Close(t.Context()))
	all, _ := spans.Spans()
	require.Len(t, collector.Named(all, "last"), 1)
}

// A collector that takes connections and never answers ends with the context of Close.
func TestCloseIsBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	tr, err := tracing.Open(t.Context(), tracing.Config{Address: l.Addr().String(), Service: "s",
		SamplingRate: tracing.PerMillion})
	require.NoError(t, err)
	_, span := tr.Tracer().Start(t.Context(), "last")
	span.End()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, tr.Close(ctx), context.DeadlineExceeded)
}
