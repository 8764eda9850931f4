package write

import (
	"context"
	"fmt"

	"github.com/sqlbrain/sqlbrain/coder"
)

// indexOf returns key's index entry as of the last commit. Sequencer only.
func (p *Pipeline) indexOf(ctx context.Context, key []byte) (indexEntry, error) {
	if e, ok := p.index.get(string(key)); ok {
		return e, nil
	}
	p.cfg.Metrics.indexMisses.Inc()
	entries, err := p.readIndex(ctx, []string{string(key)})
	if err != nil {
		return indexEntry{}, err
	}
	return entries[0], nil
}

// loadIndex reads the index entries of those keys that are not cached, in one
// multi-get.
func (p *Pipeline) loadIndex(ctx context.Context, keys [][]byte) error {
	loads := p.index.missing(keys)
	if len(loads) == 0 {
		return nil
	}
	names := make([]string, len(loads))
	for i, l := range loads {
		names[i] = l.key
	}
	entries, err := p.readIndex(ctx, names)
	p.index.fill(loads, entries)
	return err
}

func (p *Pipeline) readIndex(ctx context.Context, keys []string) ([]indexEntry, error) {
	internal := make([][]byte, len(keys))
	for i, k := range keys {
		internal[i] = coder.EncodeIndexKey([]byte(k))
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
		x, err := coder.DecodeIndex(v)
		if err != nil {
			return nil, fmt.Errorf("index row of %q: %w", keys[i], err)
		}
		entries[i] = indexEntry{Index: x, exists: true}
	}
	return entries, nil
}

// readKeys fills the index cache for keys. It returns no error: the evaluation reads what is
// missing, and reports errors.
func (p *Pipeline) readKeys(ctx context.Context, keys [][]byte) {
	if len(keys) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, p.cfg.Limits.CommitTimeout)
	defer cancel()
	if err := p.loadIndex(bounded, keys); err != nil && ctx.Err() == nil {
		p.cfg.Log.Debug("reading index rows ahead failed", "error", err)
	}
}
