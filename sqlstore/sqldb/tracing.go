package sqldb

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// tracer makes the spans of the store's calls. A span names the call, by the word that
// metrics use, and the product; never a key or a value. A nil tracer makes none.
type tracer struct {
	trace.Tracer
	system attribute.KeyValue
}

func newTracer(t trace.Tracer, product string) *tracer {
	if t == nil {
		return nil
	}
	return &tracer{t, semconv.DBSystemNameKey.String(strings.ToLower(product))}
}

// start begins the span of a call. It returns nil if the call is not part of a sampled
// trace: the members' background work would otherwise be most of what is recorded.
func (t *tracer) start(ctx context.Context, statement string) trace.Span {
	if t == nil || !trace.SpanContextFromContext(ctx).IsSampled() {
		return nil
	}
	_, span := t.Start(ctx, "sql "+statement, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(t.system, semconv.DBOperationName(statement)))
	return span
}

// endSpan ends span, if there is one. It records only the kind of err: an engine's error
// text may quote keys and values.
func endSpan(span trace.Span, err error) {
	if span == nil {
		return
	}
	if kind := errorKind(err); kind != "" {
		span.SetStatus(codes.Error, "")
		span.SetAttributes(semconv.ErrorTypeKey.String(kind))
	}
	span.End()
}
