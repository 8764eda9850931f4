package write

import (
	"context"

	"github.com/sqlbrain/sqlbrain/server/auth"
)

// Request is a Command, and what permits it.
type Request struct {
	As      auth.Permit
	Command Command
}

// ExecuteBatch executes requests in order, in as few commits as hold them, and returns their
// errors. It serves tests of commands: Run must not be under way.
func (p *Pipeline) ExecuteBatch(ctx context.Context, requests ...Request) []error {
	all := make([]*request, len(requests))
	for i, r := range requests {
		reserved, _ := p.authorize(ctx, r.As) // as Submit does; the error says what is missing
		defer p.decisions.reserve(-reserved)
		all[i] = &request{cmd: r.Command, as: r.As, done: make(chan result, 1)}
	}
	for remainder := all; len(remainder) > 0; {
		remainder = p.runBatch(ctx, remainder)
	}
	errs := make([]error, len(all))
	for i, r := range all {
		errs[i] = (<-r.done).err
	}
	return errs
}

// Forget empties the index cache. With optimism, keys are assumed absent again, although
// one was there. It serves tests.
func (p *Pipeline) Forget(optimism bool) {
	p.index.purge()
	if optimism {
		p.optimism.pause.Store(0)
	}
}

// Decisions returns for how many users it is cached whether they may write all keys of a
// lease. It serves tests.
func (p *Pipeline) Decisions(lease int64) (n int) {
	p.decisions.mu.Lock()
	defer p.decisions.mu.Unlock()
	for _, d := range p.decisions.known.Values() {
		if d.lease == lease {
			n++
		}
	}
	return n
}
