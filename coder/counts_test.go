package coder

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

// someCounts has every kind of piece.
var someCounts = Counts{Revision: 258, Pieces: []Piece{
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
			p := Piece{Keys: r.Int64N(1 << uint(1+r.IntN(40)))}
			key += r.IntN(2)
			p.Start = fmt.Appendf(nil, "k%x", key+1<<20)
			key += 1 + r.IntN(20)
			p.End = fmt.Appendf(nil, "k%x", key+1<<20)
			c.Pieces = append(c.Pieces, p)
		}
		if r.IntN(2) == 0 {
			c.Pieces[len(c.Pieces)-1].End = nil
		}
		if got, err := DecodeCounts(EncodeCounts(c)); err != nil || !reflect.DeepEqual(got, c) {
			t.Fatalf("seed %d: %+v came back as %+v, %v", seed, c, got, err)
		}
	}
}

func TestDamagedCountsAreRefused(t *testing.T) {
	row := EncodeCounts(someCounts)
	for i := range row {
		for bit := range 8 {
			damaged := bytes.Clone(row)
			damaged[i] ^= 1 << bit
			if _, err := DecodeCounts(damaged); !errors.Is(err, ErrMalformed) {
				t.Fatalf("bit %d of byte %d flipped: %v", bit, i, err)
			}
		}
		if _, err := DecodeCounts(row[:i]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("%d bytes of %d: %v", i, len(row), err)
		}
	}
}

func TestCountsOfWrongPiecesAreRefused(t *testing.T) {
	span := func(start, end string) Piece { return Piece{Span: Span{[]byte(start), []byte(end)}} }
	for name, pieces := range map[string][]Piece{
		"empty":         {span("b", "b")},
		"inverted":      {span("b", "a")},
		"overlapping":   {span("a", "c"), span("b", "d")},
		"out of order":  {span("c", "d"), span("a", "b")},
		"after the end": {{Span: Span{Start: []byte("a")}}, span("b", "c")},
		"negative":      {{Span{[]byte("a"), []byte("b")}, -1}},
	} {
		if got, err := DecodeCounts(EncodeCounts(Counts{Pieces: pieces})); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestCountsRowIsBounded: what does not fit is left out, and what is left can be read.
func TestCountsRowIsBounded(t *testing.T) {
	var c Counts
	for i := range 4000 {
		key := bytes.Repeat(fmt.Appendf(nil, "%06d", i), 100)
		c.Pieces = append(c.Pieces, Piece{Span{key, KeyAfter(key)}, int64(i)})
	}
	long := Piece{Span{[]byte("0"), bytes.Repeat([]byte("0"), MaxInternalKey+1)}, 5}
	row := EncodeCounts(Counts{Pieces: append([]Piece{long}, c.Pieces...)})
	got, err := DecodeCounts(row)
	n := len(got.Pieces)
	if err != nil || len(row) > MaxCountsRow || len(row) < MaxCountsRow-2000 ||
		!reflect.DeepEqual(got.Pieces, c.Pieces[:n]) {
		t.Fatalf("%d bytes with %d pieces, %v", len(row), n, err)
	}
}

func TestCountsAddToThePieceOfAKey(t *testing.T) {
	c := Counts{Pieces: []Piece{{Span{[]byte("b"), []byte("d")}, 2}, {Span{[]byte("d"), []byte("e")}, 2},
		{Span{[]byte("g"), nil}, 2}}}
	for _, key := range []string{"a", "b", "c\xff", "d", "e", "f", "g", "\xff"} {
		c.Add([]byte(key), 1)
	}
	for i, want := range []int64{4, 3, 4} {
		if got := c.Pieces[i].Keys; got != want {
			t.Errorf("piece %d has %d keys, want %d", i, got, want)
		}
	}
	if got := c.Keys(); got != 11 {
		t.Errorf("%d keys in all", got)
	}
}
