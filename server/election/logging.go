package election

import (
	"context"
	"log/slog"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// withClientGoLogger makes client-go log to log, and not to klog's standard
// error.
func withClientGoLogger(ctx context.Context, log *slog.Logger) context.Context {
	return klog.NewContext(ctx, logr.FromSlogHandler(debugHandler{log.Handler()}))
}

// debugHandler passes everything on at debug level: client-go calls it an error
// when a candidate loses a race, and repeats one with every attempt while the
// database is away. The elector itself logs what an operator should see.
type debugHandler struct{ next slog.Handler }

// Enabled implements slog.Handler.
func (h debugHandler) Enabled(ctx context.Context, _ slog.Level) bool {
	return h.next.Enabled(ctx, slog.LevelDebug)
}

// Handle implements slog.Handler.
func (h debugHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level > slog.LevelDebug {
		r.Level = slog.LevelDebug
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h debugHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return debugHandler{h.next.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h debugHandler) WithGroup(name string) slog.Handler {
	return debugHandler{h.next.WithGroup(name)}
}
