package write

import (
	"context"
	"fmt"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
)

// entriesAtOnce is how many index entries are looked up at once: every engine reads so many
// with one statement.
const entriesAtOnce = 500

// prefetchIndex fills the index cache for requests, except for keys that may be assumed absent.
func (p *Pipeline) prefetchIndex(ctx context.Context, requests []*request) {
	var keys [][]byte
	for _, r := range requests {
		c := r.txn()
		if keys = append(keys, c.keys...); !p.optimism.assumeAbsent(len(c.creates)) {
			keys = append(keys, c.creates...)
		}
	}
	if len(keys) == 0 {
		return
	}
	ctx, span := p.traceBatch(ctx, "prefetch", requests)
	defer span.End()
	p.readKeys(ctx, keys[:min(len(keys), p.cfg.Limits.IndexCache)]) // more would evict each other
}

// indexOf returns key's index entry as of the last commit.
func (tx *Tx) indexOf(ctx context.Context, key []byte) (indexEntry, error) {
	b := tx.batch
	if e, ok := b.read[string(key)]; ok {
		return e, e.malformed
	}
	if e, ok := b.p.index.get(string(key)); ok {
		b.read[string(key)] = e
		return e, nil
	}
	b.p.cfg.Metrics.indexMisses.Inc()
	keys := tx.missing(key)
	entries, err := b.p.readIndex(ctx, keys)
	if err != nil {
		return indexEntry{}, err
	}
	for i, e := range entries {
		b.read[string(keys[i])] = e
	}
	return entries[0], entries[0].malformed
}

// missing returns key, and other keys whose index rows are not in memory and which this command or a later one of the
// batch needs: at most entriesAtOnce.
func (tx *Tx) missing(key []byte) [][]byte {
	b, keys := tx.batch, [][]byte{key}
	seen := map[string]bool{string(key): true}
	for i, r := range b.requests {
		c := r.txn()
		needed := c.keys
		if !b.assume || i == 0 && tx.creates == nil {
			needed = slices.Concat(needed, c.creates)
		}
		for _, k := range needed {
			if len(keys) == entriesAtOnce {
				return keys
			}
			if _, read := b.read[string(k)]; read || seen[string(k)] || tx.isAssumed(k) {
				continue
			}
			if _, cached := b.p.index.peek(k); !cached {
				seen[string(k)] = true
				keys = append(keys, k)
			}
		}
	}
	return keys
}

// readIndex reads the index entries of keys in the table. Those of rows that cannot be decoded have the error.
func (p *Pipeline) readIndex(ctx context.Context, keys [][]byte) ([]indexEntry, error) {
	internal := make([][]byte, len(keys))
	for i, k := range keys {
		internal[i] = coder.EncodeIndexKey(k)
	}
	values, err := p.cfg.Store.MultiGet(ctx, internal)
	if err != nil {
		return nil, err
	}
	entries := make([]indexEntry, len(keys))
	for i, v := range values {
		if v == nil {
			continue
		}
		if x, err := coder.DecodeIndex(v); err == nil {
			entries[i] = indexEntry{Index: x, exists: true}
		} else {
			entries[i].malformed = fmt.Errorf("index row of %q: %w", keys[i], err)
		}
	}
	return entries, nil
}

// entriesOf returns the index entry of each of keys, from the index cache if it is there. It does
// not cache the others, so that many keys do not evict those in use.
func (p *Pipeline) entriesOf(ctx context.Context, keys [][]byte) ([]indexEntry, error) {
	entries := make([]indexEntry, len(keys))
	for start := 0; start < len(keys); start += entriesAtOnce {
		var at []int
		var missing [][]byte
		for i, k := range keys[start:min(start+entriesAtOnce, len(keys))] {
			var ok bool
			if entries[start+i], ok = p.index.peek(k); !ok {
				at, missing = append(at, start+i), append(missing, k)
			}
		}
		if len(missing) == 0 {
			continue
		}
		loaded, err := p.readIndex(ctx, missing)
		if err != nil {
			return nil, err
		}
		for i, e := range loaded {
			if e.malformed != nil {
				return nil, e.malformed
			}
			entries[at[i]] = e
		}
	}
	return entries, nil
}

// readKeys fills the index cache for keys, in one multi-get. It returns no error: the evaluation reads what is
// missing, and reports errors.
func (p *Pipeline) readKeys(ctx context.Context, keys [][]byte) {
	loads, missing := p.index.missing(keys)
	if len(loads) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, p.cfg.Limits.CommitTimeout)
	defer cancel()
	entries, err := p.readIndex(bounded, missing)
	p.index.fill(loads, entries)
	if err != nil && ctx.Err() == nil {
		p.cfg.Log.Debug("prefetching index rows failed", "error", err)
	}
}
