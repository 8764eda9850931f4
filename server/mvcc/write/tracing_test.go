package write

import (
	"testing"
)

// Without a tracer, a batch costs what it did before there was one.
func TestNoTracerCostsNothing(t *testing.T) {
	l, ctx := lead(t, newStore(t)), t.Context()
	requests := []*request{{}, {}}
	if n := testing.AllocsPerRun(100, func() {
		_, span := l.p.traceBatch(ctx, "batch", requests)
		span.End()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
