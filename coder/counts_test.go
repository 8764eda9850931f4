package coder

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// someCounts has every kind of counted span.
var someCounts = Counts{Revision: 258, Spans: []CountedSpan{
	{Span{[]byte("/a/1"), []byte("/a/3")}, 2048},
	{Span{[]byte("/a/3"), []byte("/a0")}, 0},
	{Span{[]byte("/b/"), []byte("/b/7")}, 7},
	{Span{[]byte("/b/7"), nil}, math.MaxInt64},
}}

func TestCountsRoundTrip(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := Counts{Revision: r.Int64()}
		for key := 0; key < 1000; {
			p := CountedSpan{Keys: r.Int64N(1 << uint(1+r.IntN(40)))}
			key += r.IntN(2)
			p.Start = fmt.Appendf(nil, "k%x", key+1<<20)
			key += 1 + r.IntN(20)
			p.End = fmt.Appendf(nil, "k%x", key+1<<20)
			c.Spans = append(c.Spans, p)
		}
		if r.IntN(2) == 0 {
			c.Spans[len(c.Spans)-1].End = nil
		}
		got, err := DecodeCounts(EncodeCounts(c))
		require.NoError(t, err, "seed %d", seed)
		require.Equal(t, c, got, "seed %d", seed)
	}
}

func TestDamagedCountsAreRefused(t *testing.T) {
	row := EncodeCounts(someCounts)
	for i := range row {
		for bit := range 8 {
			damaged := bytes.Clone(row)
			damaged[i] ^= 1 << bit
			require.ErrorIs(t, last(DecodeCounts(damaged)), ErrMalformed, "bit %d of byte %d flipped", bit, i)
		}
		require.ErrorIs(t, last(DecodeCounts(row[:i])), ErrMalformed, "%d bytes of %d", i, len(row))
	}
}

func TestCountsOfWrongSpansAreRefused(t *testing.T) {
	span := func(start, end string) CountedSpan { return CountedSpan{Span: Span{[]byte(start), []byte(end)}} }
	for name, spans := range map[string][]CountedSpan{
		"empty":         {span("b", "b")},
		"inverted":      {span("b", "a")},
		"overlapping":   {span("a", "c"), span("b", "d")},
		"out of order":  {span("c", "d"), span("a", "b")},
		"after the end": {{Span: Span{Start: []byte("a")}}, span("b", "c")},
		"negative":      {{Span{[]byte("a"), []byte("b")}, -1}},
	} {
		require.ErrorIs(t, last(DecodeCounts(EncodeCounts(Counts{Spans: spans}))), ErrMalformed, name)
	}
}

// TestCountsRowIsBounded: what does not fit is left out, and what is left can be read.
func TestCountsRowIsBounded(t *testing.T) {
	var c Counts
	for i := range 4000 {
		key := bytes.Repeat(fmt.Appendf(nil, "%06d", i), 100)
		c.Spans = append(c.Spans, CountedSpan{Span{key, KeyAfter(key)}, int64(i)})
	}
	long := CountedSpan{Span{[]byte("0"), bytes.Repeat([]byte("0"), MaxInternalKey+1)}, 5}
	row := EncodeCounts(Counts{Spans: append([]CountedSpan{long}, c.Spans...)})
	got, err := DecodeCounts(row)
	require.NoError(t, err)
	require.LessOrEqual(t, len(row), MaxCountsRow)
	require.Greater(t, len(row), MaxCountsRow-2000)
	require.Equal(t, c.Spans[:len(got.Spans)], got.Spans)
}

func TestCountsAddToTheSpanOfAKey(t *testing.T) {
	c := Counts{Spans: []CountedSpan{{Span{[]byte("b"), []byte("d")}, 2}, {Span{[]byte("d"), []byte("e")}, 2},
		{Span{[]byte("g"), nil}, 2}}}
	for _, key := range []string{"a", "b", "c\xff", "d", "e", "f", "g", "\xff"} {
		c.Add([]byte(key), 1)
	}
	for i, want := range []int64{4, 3, 4} {
		require.Equal(t, want, c.Spans[i].Keys, "counted span %d", i)
	}
	require.EqualValues(t, 11, c.Keys())
}
