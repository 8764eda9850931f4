package sqldb

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// recorded returns a tracer, and what it has recorded.
func recorded(t *testing.T) (trace.Tracer, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.Background())) })
	return provider.Tracer("test"), spans
}

func TestStatementsOfARequestAreTraced(t *testing.T) {
	otel, spans := recorded(t)
	tr := newTracer(otel, "MariaDB")
	require.Nil(t, tr.start(t.Context(), "get"), "no request is behind it")

	ctx, request := otel.Start(t.Context(), "request")
	endSpan(tr.start(ctx, "get"), fmt.Errorf("%w: 0badc0de", sqlstore.ErrKeyNotFound))
	endSpan(tr.start(ctx, "commit_tx"), fmt.Errorf("%w: duplicate key 0badc0de", sqlstore.ErrUnavailable))
	request.End()
	ended := spans.Ended()
	require.Len(t, ended, 3)
	require.Equal(t, "sql get", ended[0].Name())
	require.Equal(t, request.SpanContext().SpanID(), ended[0].Parent().SpanID())
	require.Equal(t, codes.Unset, ended[0].Status().Code, "a key that is not there is an answer")
	require.Equal(t, codes.Error, ended[1].Status().Code)
	about := fmt.Sprint(ended[1].Attributes(), ended[1].Status(), ended[1].Events())
	for _, want := range []string{"mariadb", "commit_tx", "unavailable"} {
		require.Contains(t, about, want)
	}
	require.NotContains(t, about, "0badc0de")
}

// Without a tracer, statements cost what they did before there was one.
func TestNoTracerCostsNothing(t *testing.T) {
	ctx, err := t.Context(), errors.New("an error")
	tr := newTracer(nil, "SQLite")
	require.Zero(t, testing.AllocsPerRun(100, func() { endSpan(tr.start(ctx, "get"), err) }))
}
