package write

import (
	"context"
	"slices"
	"sync/atomic"
)

// A transaction that puts a key only if it does not exist usually finds that it does not. The
// commit proves it: it creates the key's index row, and conflicts if there is one. So such a
// key is not prefetched, which saves a statement. It is assumed absent while its command is
// evaluated. If the outcome depends on the absence in any other way than by creating the key,
// the command is evaluated again on the row in the table. If the commit conflicts, the whole
// batch is.

// optimismPause is the number of keys that are prefetched after an assumption was wrong. A
// client that repeatedly creates existing keys then costs a read each, not a batch.
const optimismPause = 1024

// optimism decides whether keys may be assumed absent. Safe for concurrent use.
type optimism struct {
	pause atomic.Int64 // the number of keys to be prefetched before the next assumption
}

// allowed reports whether keys may be assumed absent.
func (o *optimism) allowed() bool { return o.pause.Load() <= 0 }

// assumeAbsent is allowed for a caller that prefetches n keys if they may not be assumed absent.
func (o *optimism) assumeAbsent(n int) bool {
	return n == 0 || o.allowed() || o.pause.Add(int64(-n)) < 0
}

// reviewAssumptions reads the keys that b assumed absent, after its commit conflicted. If one
// exists, it pauses assuming.
func (p *Pipeline) reviewAssumptions(ctx context.Context, b *batch) {
	p.readKeys(ctx, b.assumed)
	if slices.ContainsFunc(b.assumed, func(key []byte) bool {
		e, known := p.index.get(string(key))
		return !known || e.exists
	}) {
		p.optimism.pause.Store(optimismPause)
		p.cfg.Metrics.assumptionsFailed.Inc()
	}
}
