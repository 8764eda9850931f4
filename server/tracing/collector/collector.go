// Package collector takes spans in for tests, as an OpenTelemetry collector does.
package collector

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Collector is a server of OTLP over gRPC. Its methods may be called by several
// goroutines.
type Collector struct {
	collectorpb.UnimplementedTraceServiceServer
	address string

	mu    sync.Mutex
	spans []Span
	more  chan struct{} // closed, and replaced, when spans come
}

// Span is a span and who sent it.
type Span struct {
	*tracepb.Span
	Resource map[string]string
}

// Start listens on a port of this machine until t ends.
func Start(t testing.TB) *Collector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &Collector{address: l.Addr().String(), more: make(chan struct{})}
	s := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(s, c)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

// Address is where spans are to be sent.
func (c *Collector) Address() string { return c.address }

// Export implements the service.
func (c *Collector) Export(_ context.Context,
	r *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range r.GetResourceSpans() {
		about := make(map[string]string)
		for _, a := range rs.GetResource().GetAttributes() {
			about[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				c.spans = append(c.spans, Span{s, about})
			}
		}
	}
	close(c.more)
	c.more = make(chan struct{})
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// Spans returns what came so far, and a channel that is closed when more comes.
func (c *Collector) Spans() ([]Span, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans), c.more
}

// Named returns the spans of this name.
func Named(spans []Span, name string) []Span {
	var found []Span
	for _, s := range spans {
		if s.GetName() == name {
			found = append(found, s)
		}
	}
	return found
}

// Parent returns the span that s is a child of; ok is false if it did not come.
func Parent(spans []Span, s Span) (parent Span, ok bool) {
	for _, p := range spans {
		if string(p.GetSpanId()) == string(s.GetParentSpanId()) && string(p.GetTraceId()) == string(s.GetTraceId()) {
			return p, true
		}
	}
	return Span{}, false
}
