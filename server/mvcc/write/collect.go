package write

import "context"

// collect forms the next batch while the sequencer executes the current one, and prefetches
// the index entries that it needs. It is the only receiver from the queue.
func (p *Pipeline) collect(ctx context.Context) {
	var next []*request
	size := 0            // of next
	var added []*request // to next, index entries not read yet
	add := func(r *request) {
		p.queuedBytes.Add(-int64(r.txn().bytes))
		added = append(added, r)
		size += r.txn().bytes
	}
	for {
		in := p.queue
		if len(next) >= p.cfg.Limits.BatchRequests || size >= p.cfg.Limits.BatchBytes {
			in = nil
		}
		var out chan []*request
		if len(next) > 0 {
			out = p.batches
		}
		added = added[:0]
		select {
		case <-ctx.Done():
			return
		case out <- next:
			next, size = nil, 0
			continue
		case r := <-in:
			add(r)
		}
		for len(p.queue) > 0 && len(next)+len(added) < p.cfg.Limits.BatchRequests && size < p.cfg.Limits.BatchBytes {
			add(<-p.queue)
		}
		p.prefetchIndex(ctx, added, p.optimism.assumeAbsent)
		next = append(next, added...)
	}
}
