package backend

import (
	"testing"
)

// Without a tracer, a batch costs what it did before there was one.
func TestNoTracerCostsNothing(t *testing.T) {
	b := open(t, newStore(t), nil)
	l, ctx := b.leading.Load(), t.Context()
	requests := []*request{{}, {}}
	if n := testing.AllocsPerRun(100, func() {
		_, span := l.traceBatch(ctx, "batch", requests)
		span.End()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
