package write

import "context"

// collect forms the next batch while the sequencer executes the current one, and prefetches
// the index entries that it needs. It is the only receiver from the queue.
func (p *Pipeline) collect(ctx context.Context) {
	var next []*request
	size, keys := 0, 0   // of next
	var added []*request // to next, index entries not read yet
	add := func(r *request) {
		p.queuedBytes.Add(-int64(r.txn().bytes))
		added = append(added, r)
		size, keys = size+r.txn().bytes, keys+len(r.txn().keys)+len(r.txn().creates)
	}
	full := func() bool {
		l := p.cfg.Limits
		return len(next)+len(added) >= l.BatchRequests || size >= l.BatchBytes || keys >= l.BatchRows
	}
	for {
		added = added[:0]
		in := p.queue
		if full() {
			in = nil
		}
		var out chan []*request
		if len(next) > 0 {
			out = p.batches
		}
		select {
		case <-ctx.Done():
			return
		case out <- next:
			next, size, keys = nil, 0, 0
			continue
		case r := <-in:
			add(r)
		}
		for len(p.queue) > 0 && !full() {
			add(<-p.queue)
		}
		p.prefetchIndex(ctx, added)
		next = append(next, added...)
	}
}
