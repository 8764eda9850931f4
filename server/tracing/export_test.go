package tracing

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// moody is an exporter that fails as told.
type moody struct{ err error }

func (m *moody) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return m.err }
func (m *moody) Shutdown(context.Context) error                             { return nil }

func TestLostSpansAreLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	to := &moody{}
	e := &exportLog{SpanExporter: to, log: slog.New(slog.NewTextHandler(&out, nil)), address: "there:1"}
	for _, err := range []error{nil, errors.New("away"), errors.New("still away"), nil, nil, errors.New("away again")} {
		to.err = err
		require.NoError(t, e.ExportSpans(t.Context(), nil))
	}
	require.Equal(t, 3, strings.Count(out.String(), "\n"), out.String())
	require.Equal(t, 2, strings.Count(out.String(), "spans are lost"))
	require.Contains(t, out.String(), "away again")
	require.NotContains(t, out.String(), "still away")
	require.Contains(t, out.String(), "takes spans again")
}
