package bench

import (
	"math"
	"math/bits"
	"time"
)

// histogram counts durations in buckets that are at most 1/128 as wide as what
// they hold, from 1 µs to some twelve days, so that a percentile is within 1 %
// or 1 µs.
// It is not safe for concurrent use.
type histogram struct {
	buckets []uint64
	count   uint64
	sum     time.Duration
	max     time.Duration
}

const (
	linearBits  = 8 // values below 1<<linearBits have a bucket each
	linear      = 1 << linearBits
	half        = linear / 2
	largestBits = 40
)

// bucketOf returns the bucket of v microseconds. Above the linear part each
// doubling is split into half buckets.
func bucketOf(v uint64) int {
	v = min(v, 1<<largestBits-1)
	if v < linear {
		return int(v)
	}
	shift := bits.Len64(v) - linearBits
	return shift*half + int(v>>shift)
}

// bucketTop returns the largest number of microseconds in bucket i.
func bucketTop(i int) uint64 {
	if i < linear {
		return uint64(i)
	}
	shift := i/half - 1
	return uint64(i-shift*half+1)<<shift - 1
}

func (h *histogram) record(d time.Duration) {
	if h.buckets == nil {
		h.buckets = make([]uint64, bucketOf(math.MaxUint64)+1)
	}
	d = max(d, 0)
	h.buckets[bucketOf(uint64(d.Microseconds()))]++
	h.count++
	h.sum += d
	h.max = max(h.max, d)
}

// quantile returns a duration that q of all durations do not exceed, 0 < q <= 1.
func (h *histogram) quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.count)))
	var seen uint64
	for i, n := range h.buckets {
		seen += n
		if n > 0 && seen >= rank {
			return min(time.Duration(bucketTop(i)+1)*time.Microsecond, h.max)
		}
	}
	return h.max
}

func (h *histogram) mean() time.Duration {
	if h.count == 0 {
		return 0
	}
	return h.sum / time.Duration(h.count)
}
