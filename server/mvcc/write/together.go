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
// outcomes. It serves tests of commands: Run must not be under way.
func (p *Pipeline) ExecuteBatch(ctx context.Context, requests ...Request) []error {
	all := make([]*request, len(requests))
	for i, r := range requests {
		room, _ := p.reachVerdicts(ctx, r.As) // as Submit does; the outcome says what is missing
		defer p.verdicts.makeRoom(-room)
		all[i] = &request{cmd: r.Command, as: r.As, done: make(chan error, 1)}
	}
	for rest := all; len(rest) > 0; {
		rest = p.runBatch(ctx, rest)
	}
	outcomes := make([]error, len(all))
	for i, r := range all {
		outcomes[i] = <-r.done
	}
	return outcomes
}

// Forget empties the index cache. With presume, keys are presumed absent again, although
// one was there. It serves tests.
func (p *Pipeline) Forget(presume bool) {
	p.index.purge()
	if presume {
		p.presumptions.pause.Store(0)
	}
}

// Decisions returns for how many users it is remembered whether they may write all keys of a
// lease. It serves tests.
func (p *Pipeline) Decisions(lease int64) int {
	p.verdicts.mu.Lock()
	defer p.verdicts.mu.Unlock()
	return len(p.verdicts.of[lease])
}
