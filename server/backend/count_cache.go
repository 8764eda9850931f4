package backend

import (
	"encoding/binary"

	lru "github.com/hashicorp/golang-lru/v2"
)

// countCache remembers how many keys ranges had. A revision's content never
// changes, so an entry is right for ever. It makes a paged list count once: the
// count of the next page is this page's less what it returned, and is put here
// under the range the client will ask for. Besides, it keeps for each range its
// newest count, the base that later counts start from.
type countCache struct {
	at    *lru.Cache[string, int64]
	bases *lru.Cache[string, countBase]
}

type countBase struct{ rev, n int64 }

const (
	countCacheEntries = 4096
	countBaseEntries  = 1024
)

func newCountCache() (*countCache, error) {
	at, err := lru.New[string, int64](countCacheEntries)
	if err != nil {
		return nil, err
	}
	bases, err := lru.New[string, countBase](countBaseEntries)
	return &countCache{at: at, bases: bases}, err
}

func (c *countCache) get(kr KeyRange, rev int64) (int64, bool) { return c.at.Get(countKey(kr, rev)) }

func (c *countCache) put(kr KeyRange, rev, n int64) { c.at.Add(countKey(kr, rev), n) }

func (c *countCache) base(kr KeyRange) (countBase, bool) { return c.bases.Get(countKey(kr, 0)) }

// putBase replaces kr's base unless that is newer.
func (c *countCache) putBase(kr KeyRange, b countBase) {
	if old, ok := c.base(kr); !ok || old.rev < b.rev {
		c.bases.Add(countKey(kr, 0), b)
	}
}

func countKey(kr KeyRange, rev int64) string {
	b := make([]byte, 0, 24+len(kr.Key)+len(kr.End))
	b = binary.BigEndian.AppendUint64(b, uint64(rev))
	b = binary.AppendUvarint(b, uint64(len(kr.Key)))
	b = append(b, kr.Key...)
	return string(append(b, kr.End...))
}
