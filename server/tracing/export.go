package tracing

import (
	"context"
	"log/slog"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// exportLog says when spans begin to get lost, and when they arrive again; the
// library would write a line for each attempt, and not into this program's log.
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
