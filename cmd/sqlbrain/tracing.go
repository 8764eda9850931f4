package main

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
	"github.com/sqlbrain/sqlbrain/server/tracing"
)

// openTracing returns nil if tracing is off.
func openTracing(ctx context.Context, c *config.Config, logger *slog.Logger) (*tracing.Tracing, error) {
	if !c.EnableDistributedTracing {
		return nil, nil
	}
	return tracing.Open(ctx, tracing.Config{
		Address: c.DistributedTracingAddress, Service: c.DistributedTracingServiceName,
		Instance: cmp.Or(c.DistributedTracingInstanceID, c.Name), Version: productVersion(),
		SamplingRate: c.DistributedTracingSamplingRate, Logger: logger,
	})
}

// lastSpans is the longest that a stopping process waits for its collector: it has
// nothing else to do any more, and somebody may wait for it.
const lastSpans = 2 * time.Second

// closeTracing sends what is left. A collector that is away is no reason to fail.
func closeTracing(ctx context.Context, t *tracing.Tracing, logger *slog.Logger, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(timeout, lastSpans))
	defer cancel()
	if err := t.Close(ctx); err != nil {
		logger.Warn("closing the traces", "error", err)
	}
}
