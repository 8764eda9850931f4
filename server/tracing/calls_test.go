package tracing_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/server/tracing"
	"github.com/sqlbrain/sqlbrain/server/tracing/collector"
)

// failing answers every stream with an error.
type failing struct {
	reflectionpb.UnimplementedServerReflectionServer
	err error
}

func (f failing) ServerReflectionInfo(reflectionpb.ServerReflection_ServerReflectionInfoServer) error {
	return f.err
}

// attributes returns the attributes of a span as text or numbers.
func attributes(s collector.Span) map[string]any {
	all := make(map[string]any)
	for _, a := range s.GetAttributes() {
		switch v := a.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			all[a.GetKey()] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			all[a.GetKey()] = int(v.IntValue)
		}
	}
	return all
}

// Both sides of a call have a span with the method, the address and the outcome. A refusal is
// an error for the client only. Health checks have no span.
func TestSpansOfCallsHaveMethodAddressAndOutcome(t *testing.T) {
	const method = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
	for _, c := range []struct {
		err    error
		name   string
		server tracepb.Status_StatusCode
		client tracepb.Status_StatusCode
	}{
		{status.Error(codes.NotFound, "not here"), "NOT_FOUND", tracepb.Status_STATUS_CODE_UNSET,
			tracepb.Status_STATUS_CODE_ERROR},
		{status.Error(codes.Canceled, "gone"), "CANCELLED", tracepb.Status_STATUS_CODE_UNSET,
			tracepb.Status_STATUS_CODE_ERROR},
		{status.Error(codes.Unavailable, "away"), "UNAVAILABLE", tracepb.Status_STATUS_CODE_ERROR,
			tracepb.Status_STATUS_CODE_ERROR},
		{nil, "OK", tracepb.Status_STATUS_CODE_UNSET, tracepb.Status_STATUS_CODE_UNSET},
	} {
		t.Run(c.name, func(t *testing.T) {
			spans := collector.Start(t)
			tr, err := tracing.Open(t.Context(), tracing.Config{Address: spans.Address(), Service: "s",
				SamplingRate: tracing.PerMillion})
			require.NoError(t, err)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			server := grpc.NewServer(grpc.StatsHandler(tr.Server()))
			reflectionpb.RegisterServerReflectionServer(server, failing{err: c.err})
			done := make(chan error, 1)
			go func() { done <- server.Serve(l) }()
			conn, err := grpc.NewClient(l.Addr().String(),
				append(dialOptions(tr), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
			require.NoError(t, err)
			_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
			require.Equal(t, codes.Unimplemented, status.Code(err))
			stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
			require.NoError(t, err)
			_, err = stream.Recv()
			require.Error(t, err)
			require.NoError(t, conn.Close())
			server.GracefulStop()
			require.NoError(t, <-done)
			require.NoError(t, tr.Close(t.Context()))

			all, _ := spans.Spans()
			require.Len(t, all, 2, "the two sides of one call")
			host, port := "127.0.0.1", l.Addr().(*net.TCPAddr).Port
			for _, s := range all {
				require.Equal(t, method, s.GetName())
				require.Equal(t, map[string]any{
					"rpc.system.name": "grpc", "rpc.method": method, "rpc.response.status_code": c.name,
					"server.address": host, "server.port": port,
				}, attributes(s))
				want := c.client
				if s.GetKind() == tracepb.Span_SPAN_KIND_SERVER {
					want = c.server
					parent, ok := collector.Parent(all, s)
					require.True(t, ok)
					require.Equal(t, tracepb.Span_SPAN_KIND_CLIENT, parent.GetKind())
				}
				require.Equal(t, want, s.GetStatus().GetCode())
			}
		})
	}
}
