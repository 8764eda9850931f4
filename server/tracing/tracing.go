package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/stats"
)

// PerMillion is the sampling rate at which every request is traced.
const PerMillion = 1_000_000

// maxLinks bounds the links of one span: a batch has a link to each of its requests but one.
// The library's default is half of what a batch holds by default.
const maxLinks = 4096

// instrumentation is the name of this program's instrumentation scope in spans.
const instrumentation = "github.com/sqlbrain/sqlbrain"

// Config says where spans go, and which.
type Config struct {
	// Address is host:port of a collector that takes OTLP over gRPC, unencrypted, as
	// etcd sends it.
	Address string
	// Service is the same for all members; Instance, if not empty, is this member's.
	Service, Instance, Version string
	// SamplingRate is how many of a million requests without a sampled parent span are
	// traced. Requests with one always are.
	SamplingRate int
	Logger       *slog.Logger // discards
}

// DefaultConfig returns the default configuration: a collector on this host, and no request
// traced unless its client traces it.
func DefaultConfig() Config {
	return Config{Address: "localhost:4317", Service: "sqlbrain"}
}

// Tracing makes spans and sends them. A nil one does neither; its methods may be
// called by several goroutines.
type Tracing struct {
	provider *sdktrace.TracerProvider
	exporter sdktrace.SpanExporter
}

// Open starts to trace. The collector need not be there yet.
func Open(ctx context.Context, cfg Config) (*Tracing, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	client, err := newCollectorClient(cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	about := []attribute.KeyValue{semconv.ServiceName(cfg.Service)}
	if cfg.Instance != "" {
		about = append(about, semconv.ServiceInstanceID(cfg.Instance))
	}
	if cfg.Version != "" {
		about = append(about, semconv.ServiceVersion(cfg.Version))
	}
	limits := sdktrace.NewSpanLimits()
	limits.LinkCountLimit = maxLinks
	return &Tracing{exporter: exporter, provider: sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&exportLog{SpanExporter: exporter, log: cfg.Logger, address: cfg.Address}),
		sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithResource(resource.NewWithAttributes(semconv.SchemaURL, about...)),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(float64(cfg.SamplingRate)/PerMillion))),
	)}, nil
}

// Close sends the remaining spans until ctx ends, and then stops. It drops the spans that
// are still left, and its error says so.
func (t *Tracing) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	err := t.provider.Shutdown(ctx)
	if err == nil {
		return nil
	}
	// The provider stopped waiting but continues to send. Shutting the exporter down ends
	// that at once, since ctx has ended.
	return fmt.Errorf("tracing: spans were dropped: %w", errors.Join(err, t.exporter.Shutdown(ctx)))
}

// Tracer returns the tracer for the layers below the RPCs; nil if off.
func (t *Tracing) Tracer() trace.Tracer {
	if t == nil {
		return nil
	}
	return t.provider.Tracer(instrumentation)
}

// Server returns the handler that makes a span of each call a gRPC server answers;
// nil if off.
func (t *Tracing) Server() stats.Handler {
	if t == nil {
		return nil
	}
	return otelgrpc.NewServerHandler(t.options()...)
}

// Client returns the handler that makes a span of each call of a gRPC client and sends the
// trace's context with it; nil if off.
func (t *Tracing) Client() stats.Handler {
	if t == nil {
		return nil
	}
	return otelgrpc.NewClientHandler(t.options()...)
}

func (t *Tracing) options() []otelgrpc.Option {
	return []otelgrpc.Option{
		otelgrpc.WithTracerProvider(t.provider),
		otelgrpc.WithMeterProvider(noop.NewMeterProvider()), // metrics exist already
		otelgrpc.WithPropagators(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{},
			propagation.Baggage{})),
		otelgrpc.WithFilter(traced),
	}
}

// traced excludes calls that no request causes: those between members, which are many and,
// in the case of feeds, last for days; and health checks.
func traced(info *stats.RPCTagInfo) bool {
	return !strings.HasPrefix(info.FullMethodName, "/sqlbrain.Peer/") &&
		!strings.HasPrefix(info.FullMethodName, "/grpc.health.v1.Health/")
}
