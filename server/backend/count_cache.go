package backend

import (
	"encoding/binary"

	lru "github.com/hashicorp/golang-lru/v2"
)

// countCache remembers how many keys ranges had. A revision's content never
// changes, so an entry is right for ever. It makes a paged list count once: the
// count of the next page is this page's less what it returned, and is put here
// under the range the client will ask for.
type countCache struct {
	at *lru.Cache[string, int64]
}

const countCacheEntries = 4096

func newCountCache() (*countCache, error) {
	at, err := lru.New[string, int64](countCacheEntries)
	return &countCache{at: at}, err
}

func (c *countCache) get(kr KeyRange, rev int64) (int64, bool) { return c.at.Get(countKey(kr, rev)) }

func (c *countCache) put(kr KeyRange, rev, n int64) { c.at.Add(countKey(kr, rev), n) }

func countKey(kr KeyRange, rev int64) string {
	b := make([]byte, 0, 24+len(kr.Key)+len(kr.End))
	b = binary.BigEndian.AppendUint64(b, uint64(rev))
	b = binary.AppendUvarint(b, uint64(len(kr.Key)))
	b = append(b, kr.Key...)
	return string(append(b, kr.End...))
}
