package workload

import (
	"math"
	"time"
)

// histogram counts durations in buckets, each less than 1 % wider than the one before, so that
// a percentile is within 1 % or 1 µs. It is not safe for concurrent use.
type histogram struct {
	buckets []uint64
	count   uint64
	max     time.Duration
}

// bucketGrowth is the logarithm of the ratio between the widths of neighbors.
const bucketGrowth = 0.007

// bucketOf returns the bucket of a duration.
func bucketOf(d time.Duration) int {
	return int(math.Log1p(float64(d)/float64(time.Microsecond)) / bucketGrowth)
}

// bucketTop returns a duration above all of bucket i.
func bucketTop(i int) time.Duration {
	return time.Duration(math.Expm1(float64(i+1)*bucketGrowth) * float64(time.Microsecond))
}

func (h *histogram) record(d time.Duration) {
	if h.buckets == nil {
		h.buckets = make([]uint64, bucketOf(math.MaxInt64)+1)
	}
	d = max(d, 0)
	h.buckets[bucketOf(d)]++
	h.count++
	h.max = max(h.max, d)
}

// quantile returns a duration that q of all durations do not exceed, 0 < q <= 1.
func (h *histogram) quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.count)))
	var seen uint64
	for i, n := range h.buckets {
		seen += n
		if n > 0 && seen >= rank {
			return min(bucketTop(i), h.max)
		}
	}
	return h.max
}
