package write

import (
	"context"
	"slices"
	"sync/atomic"
)

// A transaction that puts a key only if it does not exist usually finds that it does not. The
// commit proves it: it creates the key's index row, and conflicts if there is one. So such a
// key is not read ahead, which saves a statement. It is presumed absent while its command is
// evaluated. If the outcome depends on the absence in any other way than by creating the key,
// the command is evaluated again on the row in the table. If the commit conflicts, the whole
// batch is.

// presumePause is the number of keys that are read ahead after a key was presumed wrongly. A
// client that repeatedly creates existing keys then costs a read each, not a batch.
const presumePause = 1024

// presumptions decides whether keys may be presumed absent. Safe for concurrent use.
type presumptions struct {
	pause atomic.Int64 // the number of keys to be read ahead before presuming again
}

// hold reports whether keys may be presumed absent.
func (p *presumptions) hold() bool { return p.pause.Load() <= 0 }

// holdFor is hold for a caller that reads n keys ahead if they may not be.
func (p *presumptions) holdFor(n int) bool {
	return n == 0 || p.hold() || p.pause.Add(int64(-n)) < 0
}

// loadFresh fills the index cache for the keys that requests expect to be absent. It returns
// no error, see readKeys.
func (p *Pipeline) loadFresh(ctx context.Context, requests []*request) {
	var keys [][]byte
	for _, r := range requests {
		_, fresh := r.indexKeys()
		keys = append(keys, fresh...)
	}
	p.readKeys(ctx, keys)
}

// judgePresumptions reads the keys that s presumed absent, after its commit conflicted. If one
// exists, it pauses presuming.
func (p *Pipeline) judgePresumptions(ctx context.Context, s *batchState) {
	p.readKeys(ctx, s.presumed)
	if slices.ContainsFunc(s.presumed, func(key []byte) bool {
		e, known := p.index.get(string(key))
		return !known || e.exists
	}) {
		p.presumptions.pause.Store(presumePause)
		p.cfg.Metrics.presumedWrongly.Inc()
	}
}
