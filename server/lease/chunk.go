package lease

import (
	"sync/atomic"
	"time"
)

const (
	// revocationKeys is the maximum number of keys that a revocation deletes in one revision.
	// Such a commit takes about 50 ms on SQLite and MariaDB, and 150 ms on MySQL 9.7, where
	// the time grows faster than the number of keys.
	revocationKeys = 2000
	// minChunkKeys is the size of the smallest chunks, used with slow databases.
	minChunkKeys = 100
	// chunkTime is how long other writes should at most wait for a chunk.
	chunkTime = 60 * time.Millisecond
	// revocationRoom is the maximum number of keys of pending revocations. It bounds how many
	// deletions a write can have ahead of it. A lease without keys counts as one key.
	revocationRoom = revocationKeys
)

// chunkSize is the number of keys in the next chunk of a revocation.
type chunkSize struct{ keys atomic.Int64 }

func (p *chunkSize) get() int {
	if n := p.keys.Load(); n > 0 {
		return int(n)
	}
	return revocationKeys / 2
}

// learn adapts the size to the time that a chunk of n keys took. It halves the size after a
// slow chunk, and increases it only after fast chunks of full size.
func (p *chunkSize) learn(n int, took time.Duration) {
	size := p.get()
	switch {
	case took > chunkTime*3/2:
		size = max(min(size, n)/2, minChunkKeys)
	case took < chunkTime*2/3 && n >= size:
		size = min(size*5/4, revocationKeys)
	}
	p.keys.Store(int64(size))
}
