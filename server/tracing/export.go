package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// exportTimeout bounds one export, with the time for which it waits for the collector.
const exportTimeout = 10 * time.Second

// retries lets gRPC repeat an export that the collector could not take at the time.
const retries = `{"methodConfig": [{"name": [{}], "waitForReady": true, "retryPolicy": {
	"maxAttempts": 5, "initialBackoff": "1s", "maxBackoff": "5s", "backoffMultiplier": 2,
	"retryableStatusCodes": ["ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"]}}]}`

// collectorClient is the otlptrace.Client of a collector that takes OTLP over gRPC. The
// library's own client links ten more packages for options that this program does not have.
type collectorClient struct{ conn *grpc.ClientConn }

func newCollectorClient(address string) (*collectorClient, error) {
	conn, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(retries))
	return &collectorClient{conn}, err
}

// Start does nothing: the first export connects.
func (c *collectorClient) Start(context.Context) error { return nil }

// Stop closes the connection, which ends an export in progress. The span processor calls it
// after the last export, or when there is no time left for it.
func (c *collectorClient) Stop(context.Context) error { return c.conn.Close() }

// UploadTraces sends spans.
func (c *collectorClient) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	response, err := collectorpb.NewTraceServiceClient(c.conn).Export(ctx,
		&collectorpb.ExportTraceServiceRequest{ResourceSpans: spans})
	if err != nil {
		return err
	}
	if p := response.GetPartialSuccess(); p.GetRejectedSpans() > 0 {
		return fmt.Errorf("the collector rejected %d spans: %s", p.GetRejectedSpans(), p.GetErrorMessage())
	}
	return nil
}

// exportLog logs when spans begin to be lost, and when they arrive again. The library would
// write a line for each attempt, and not into this program's log.
type exportLog struct {
	sdktrace.SpanExporter
	log     *slog.Logger
	address string
	failing atomic.Bool
}

// ExportSpans implements sdktrace.SpanExporter.
func (e *exportLog) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !e.failing.Swap(true):
		e.log.Warn("spans are lost: the collector does not take them", "address", e.address, "error", err)
	case err == nil && e.failing.Swap(false):
		e.log.Info("the collector takes spans again", "address", e.address)
	}
	return nil
}
