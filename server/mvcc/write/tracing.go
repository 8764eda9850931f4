package write

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// traceRequest begins a span for r if it is part of a sampled trace. The caller calls end with the error of the
// request.
func (p *Pipeline) traceRequest(ctx context.Context, r *request) (traced context.Context, end func(error)) {
	if p.cfg.Tracer == nil || !trace.SpanContextFromContext(ctx).IsSampled() {
		return ctx, func(error) {}
	}
	traced, r.span = p.cfg.Tracer.Start(ctx, "write")
	return traced, func(err error) {
		if err != nil {
			r.span.SetStatus(codes.Error, "") // errors may name keys
		}
		r.span.End()
	}
}

// traceBatch begins a span for work that serves all of requests. It is part of the trace of
// the first request that has one, and is linked with the spans of the others. If no request is
// traced, the span does nothing.
func (p *Pipeline) traceBatch(ctx context.Context, name string, requests []*request) (context.Context, trace.Span) {
	if p.cfg.Tracer == nil {
		return ctx, trace.SpanFromContext(ctx)
	}
	var first *request
	var links []trace.Link
	for _, r := range requests {
		switch {
		case r.span == nil:
		case first == nil:
			first = r
		default:
			links = append(links, trace.Link{SpanContext: r.span.SpanContext()})
		}
	}
	if first == nil {
		return ctx, trace.SpanFromContext(ctx)
	}
	ctx, span := p.cfg.Tracer.Start(trace.ContextWithSpan(ctx, first.span), name,
		trace.WithLinks(links...), trace.WithAttributes(attribute.Int("sqlbrain.batch.requests", len(requests))))
	for _, r := range requests {
		if r.span != nil && r != first {
			r.span.AddLink(trace.Link{SpanContext: span.SpanContext()})
		}
	}
	return ctx, span
}
