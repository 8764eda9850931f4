package backend

import (
	"context"
	"sync"
	"time"
)

const (
	// maxCountTime bounds a count of the table that nobody may be waiting for.
	maxCountTime = 2 * time.Minute
	// maxCountRuns bounds such counts; further ones end with their request.
	maxCountRuns = 2
)

// countRuns are counts of the table that outlive the requests that asked for
// them. A count of millions of keys takes longer than a client waits: if it ended
// with the request, so would the next, and no page of such a list would ever be
// answered. What it found is the base for those who ask again. Who asks for a range
// that is being counted waits for that count.
type countRuns struct {
	life context.Context
	end  context.CancelFunc
	runs sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	running map[string]*countRun // by countKey at revision 0
}

type countRun struct {
	rev  int64
	done chan struct{} // closed behind n and err
	n    int64
	err  error
}

func newCountRuns() *countRuns {
	c := &countRuns{running: make(map[string]*countRun)}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// close ends the counts under way; there are no others any more.
func (c *countRuns) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.runs.Wait()
}

// join returns the run that counts kr, or starts one at revision rev; nil if there
// are as many as there may be.
func (c *countRuns) join(kr KeyRange, rev int64, count func(ctx context.Context) (int64, error)) *countRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := countKey(kr, 0)
	if run := c.running[key]; run != nil {
		return run
	}
	if c.closed || len(c.running) == maxCountRuns {
		return nil
	}
	run := &countRun{rev: rev, done: make(chan struct{})}
	c.running[key] = run
	c.runs.Go(func() {
		ctx, cancel := context.WithTimeout(c.life, maxCountTime)
		defer cancel()
		run.n, run.err = count(ctx)
		c.mu.Lock()
		delete(c.running, key)
		c.mu.Unlock()
		close(run.done)
	})
	return run
}

// countOnce counts in the table, together with others who want the same range
// counted.
func (r *reading) countOnce(ctx context.Context, kr KeyRange) (int64, error) {
	for range countTries {
		run := r.countRuns.join(kr, r.rev, func(ctx context.Context) (int64, error) {
			if n, ok := r.counts.get(kr, r.rev); ok {
				return n, nil // another run ended just before this one began
			}
			return r.reader.at(r.rev).countAndKeep(ctx, kr)
		})
		if run == nil {
			break
		}
		select {
		case <-run.done:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		switch {
		case run.rev == r.rev:
			return run.n, run.err
		case run.err == nil:
			if n, ok, err := r.carry(ctx, kr); ok || err != nil {
				return n, err
			}
		}
	}
	return r.countTable(ctx, kr)
}

// countAndKeep counts in the table, and remembers the count if compaction did not
// spoil it.
func (r *reading) countAndKeep(ctx context.Context, kr KeyRange) (int64, error) {
	r.table = true
	n, err := r.countTable(ctx, kr)
	if err == nil {
		err = r.stillReadable(ctx)
	}
	if err != nil {
		return 0, err
	}
	r.counted = append(r.counted, countedRange{kr, n})
	r.keepCounts()
	return n, nil
}
