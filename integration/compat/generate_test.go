package compat

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// step is one step of a history. It draws its choices from r only, and may refer
// to what w has seen.
type step func(w *world, r *rand.Rand)

// steps are what histories are made of, with how often each is chosen.
var steps = []struct {
	weight int
	step   step
}{
	{22, stepPut},
	{14, stepRange},
	{7, stepRangeStream},
	{7, stepDelete},
	{16, stepTxn},
	{3, stepCompact},
	{4, stepGrant},
	{1, stepRevoke},
	{2, stepLeaseReads},
	{1, stepPassingLease},
	{7, stepWatch},
	{3, stepCancelWatch},
	{3, stepProgress},
	{1, stepCloseStream},
	{4, func(w *world, _ *rand.Rand) { w.settle() }},
	{2, stepHashKV},
	{1, stepStatus},
	{1, stepAlarm},
	{1, stepBigTxn},
}

func pick(r *rand.Rand) step {
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	n := r.IntN(total)
	for _, s := range steps {
		if n -= s.weight; n < 0 {
			return s.step
		}
	}
	panic("unreachable")
}

func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// chance is true once in n times.
func chance(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

// hostile keys try the coding of keys: escapes, separators, and ends of ranges.
var hostile = []string{
	"\x00", "\x00\x00", "\x00\x01", "\x01", "$", "$$", "$\x00", "%", "%%", "%$", "%00", "\x24\x25", "\xff", "\xff\xff",
	"\xff\x00",
	"a", "a\x00", "a\x00\x00", "a\x01", "a$", "a$b", "a%", "a%00", "aa", "b", "b\xff", "c", "fence",
}

// anyKey draws a key; sometimes the empty one, which is invalid.
func anyKey(r *rand.Rand) []byte {
	switch n := r.IntN(100); {
	case n < 2:
		return nil
	case n < 40:
		return []byte(one(r, hostile...))
	case n < 90:
		return fmt.Appendf(nil, "%s%02d", one(r, "k/", "k/", "m/"), r.IntN(25))
	default:
		b := make([]byte, 1+r.IntN(4))
		for i := range b {
			b[i] = one[byte](r, 0, 1, '$', '%', '/', 'a', 'k', 0xfe, 0xff)
		}
		return b
	}
}

// anyRange draws a key and an end: a single key, a prefix, everything from a key
// on, between two keys (in any order), up to the next key.
func anyRange(r *rand.Rand) (key, end []byte) {
	key = anyKey(r)
	switch n := r.IntN(12); {
	case n < 4:
		return key, nil
	case n < 6:
		return key, []byte{0}
	case n < 7:
		return []byte{0}, []byte{0}
	case n < 9:
		key = []byte(one(r, "k/", "m/", "k", "a", "$", "%", "\xff", "\x00", "k/1"))
		return key, []byte(clientv3.GetPrefixRangeEnd(string(key)))
	case n < 10:
		return key, append(bytes.Clone(key), 0)
	default:
		return key, anyKey(r)
	}
}

func anyValue(r *rand.Rand) []byte {
	switch n := r.IntN(20); {
	case n < 3:
		return nil
	case n < 14:
		return []byte(one(r, "1", "2", "3", "a", "b", "\x00", "\xff"))
	case n < 19:
		return fmt.Appendf(nil, "value %d", r.IntN(1000))
	default:
		return bytes.Repeat([]byte{byte(r.Uint32())}, 1+r.IntN(5000))
	}
}

// anyRevision draws a revision to read at: mostly one that can be read, often near
// one of the bounds.
func (w *world) anyRevision(r *rand.Rand) int64 {
	switch n := r.IntN(20); {
	case n < 8:
		return w.pastRevision(r)
	case n < 10:
		return w.revision
	case n < 11:
		return w.revision - 1
	case n < 13:
		return w.compacted
	case n < 14:
		return w.compacted + 1
	case n < 15:
		return w.compacted - 1
	case n < 17:
		return w.revision + 1
	case n < 18:
		return w.revision + int64(2+r.IntN(20))
	case n < 19:
		return -int64(1 + r.IntN(3))
	default:
		return one[int64](r, math.MaxInt64, math.MinInt64, 1)
	}
}

// pastRevision draws one between the compact revision and the current one.
func (w *world) pastRevision(r *rand.Rand) int64 {
	low := max(1, w.compacted)
	return low + r.Int64N(max(1, w.revision-low+1))
}

// anyLease draws the id of a lease: none, mostly an existing one, sometimes a missing one.
func (w *world) anyLease(r *rand.Rand) int64 {
	switch n := r.IntN(20); {
	case n < 12:
		return 0
	case n < 19 && len(w.leases) > 0:
		return w.leases[r.IntN(len(w.leases))]
	case n < 19:
		return 0
	default:
		return one[int64](r, 999, -999, math.MaxInt64)
	}
}
