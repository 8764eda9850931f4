package backend

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// traced is await in a span, if the request is part of a sampled trace.
func (l *leader) traced(ctx context.Context, r *request) error {
	if l.cfg.Tracer == nil || !trace.SpanContextFromContext(ctx).IsSampled() {
		return l.await(ctx, r)
	}
	ctx, r.span = l.cfg.Tracer.Start(ctx, "write")
	defer r.span.End()
	err := l.await(ctx, r)
	if err != nil {
		r.span.SetStatus(codes.Error, "") // errors may name keys
	}
	return err
}

// traceBatch begins the span of what is done for requests at once: in the trace of the
// first of them that is traced, with links to the others, which link to it. If none is,
// the span is one that does nothing.
func (l *leader) traceBatch(ctx context.Context, name string, requests []*request) (context.Context, trace.Span) {
	if l.cfg.Tracer == nil {
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
	ctx, span := l.cfg.Tracer.Start(trace.ContextWithSpan(ctx, first.span), name,
		trace.WithLinks(links...), trace.WithAttributes(attribute.Int("sqlbrain.batch.requests", len(requests))))
	for _, r := range requests {
		if r.span != nil && r != first {
			r.span.AddLink(trace.Link{SpanContext: span.SpanContext()})
		}
	}
	return ctx, span
}
