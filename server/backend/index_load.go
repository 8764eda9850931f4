package backend

import (
	"context"
	"fmt"

	"github.com/sqlbrain/sqlbrain/coder"
)

// indexOf returns key's index entry as of the last commit. Sequencer only.
func (l *leader) indexOf(ctx context.Context, key []byte) (indexEntry, error) {
	if e, ok := l.index.get(string(key)); ok {
		return e, nil
	}
	l.metrics.indexMisses.Inc()
	entries, err := l.readIndex(ctx, []string{string(key)})
	if err != nil {
		return indexEntry{}, err
	}
	return entries[0], nil
}

// loadIndex reads the index entries of those keys that are not cached, in one
// multi-get.
func (l *leader) loadIndex(ctx context.Context, keys [][]byte) error {
	loads := l.index.missing(keys)
	if len(loads) == 0 {
		return nil
	}
	names := make([]string, len(loads))
	for i, l := range loads {
		names[i] = l.key
	}
	entries, err := l.readIndex(ctx, names)
	l.index.fill(loads, entries)
	return err
}

func (l *leader) readIndex(ctx context.Context, keys []string) ([]indexEntry, error) {
	internal := make([][]byte, len(keys))
	for i, k := range keys {
		internal[i] = coder.EncodeIndexKey([]byte(k))
	}
	values, err := l.store.MultiGet(ctx, internal)
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
