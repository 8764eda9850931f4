package coder

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
)

// CountedSpan is a span of raw keys, and how many keys of it exist.
type CountedSpan struct {
	Span
	Keys int64
}

// Counts is the content of the counts row: how many keys there were in spans of the key
// space at a revision. The spans are disjoint and in the order of keys, and need not be
// contiguous.
type Counts struct {
	Revision int64
	Spans    []CountedSpan
}

// Keys returns how many keys all counted spans have together.
func (c *Counts) Keys() (n int64) {
	for i := range c.Spans {
		n += c.Spans[i].Keys
	}
	return n
}

// Add adds net keys to the counted span that key lies in, if there is one.
func (c *Counts) Add(key []byte, net int64) {
	i, found := slices.BinarySearchFunc(c.Spans, key,
		func(p CountedSpan, key []byte) int { return bytes.Compare(p.Start, key) })
	if !found {
		i--
	}
	if i >= 0 && EndBefore(key, c.Spans[i].End) {
		c.Spans[i].Keys += net
	}
}

// Net returns by how much c changes the number of keys.
func (c *Change) Net() int64 {
	switch {
	case c.Tombstone:
		return -1
	case c.PrevRevision == 0:
		return 1
	default:
		return 0
	}
}

// MaxCountsRow is the size in bytes of the largest counts row. It has room for some 10,000
// counted spans with keys of 50 bytes, and fits any packet that MySQL may be limited to.
const MaxCountsRow = 1 << 19

// CountsKey is the internal key of the counts row.
func CountsKey() []byte { return []byte(magicMeta + "counts") }

const (
	countsHead = 1 + 8
	countsTail = 4

	spanFollows = 1 // the counted span starts where the one before ends
	spanEndless = 2 // it is after every key
)

// EncodeCounts returns the counts row's value. It leaves out the last counted spans if the row would
// become too large, and counted spans with a bound that is longer than any key.
//
//	format(1) revision(8), for each counted span: kind(1) start end uvarint keys; crc32c(4) of all before
//
// A start or an end is: uvarint len of what it begins with as the one before, uvarint len(rest),
// rest. kind 1 has no start, because the counted span starts where the one before ends; kind 2 no end.
func EncodeCounts(c Counts) []byte {
	b := appendInt64s([]byte{formatV1}, c.Revision)
	var last []byte
	bound := func(key []byte) {
		same := 0
		for same < min(len(last), len(key)) && last[same] == key[same] {
			same++
		}
		b = binary.AppendUvarint(b, uint64(same))
		b = binary.AppendUvarint(b, uint64(len(key)-same))
		b = append(b, key[same:]...)
		last = key
	}
	for _, p := range c.Spans {
		if max(len(p.Start), len(p.End)) > MaxInternalKey {
			continue // clients choose the bounds of ranges
		}
		size, kind := len(b), byte(0)
		if len(b) > countsHead && bytes.Equal(p.Start, last) {
			kind |= spanFollows
		}
		if p.End == nil {
			kind |= spanEndless
		}
		if b = append(b, kind); kind&spanFollows == 0 {
			bound(p.Start)
		}
		if p.End != nil {
			bound(p.End)
		}
		if b = binary.AppendUvarint(b, uint64(p.Keys)); len(b) > MaxCountsRow-countsTail {
			b = b[:size]
			break
		}
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// DecodeCounts is the inverse of EncodeCounts.
func DecodeCounts(b []byte) (Counts, error) {
	bad := func() error { return malformed(b, "counts of %d bytes", len(b)) }
	end := len(b) - countsTail
	if end < countsHead || len(b) > MaxCountsRow || b[0] != formatV1 ||
		crc32.Checksum(b[:end], castagnoli) != binary.BigEndian.Uint32(b[end:]) {
		return Counts{}, bad()
	}
	c := Counts{Revision: int64At(b, 1)}
	d := countsDecoder{left: b[countsHead:end]}
	for len(d.left) > 0 {
		p, ok := d.span()
		if !ok {
			return Counts{}, bad()
		}
		c.Spans = append(c.Spans, p)
	}
	return c, nil
}

// countsDecoder decodes the counted spans of a counts row.
type countsDecoder struct {
	left    []byte
	last    []byte // the bound before
	begun   bool   // there was a counted span before
	endless bool   // which has no end
}

// span returns the next counted span.
func (d *countsDecoder) span() (p CountedSpan, ok bool) {
	kind := d.left[0]
	d.left = d.left[1:]
	follows := kind&spanFollows != 0
	if kind > spanFollows|spanEndless || d.endless || follows && !d.begun {
		return p, false
	}
	if p.Start = d.last; !follows {
		if p.Start, ok = d.bound(); !ok || d.begun && bytes.Compare(p.Start, d.last) < 0 {
			return p, false
		}
		d.last = p.Start
	}
	if d.endless = kind&spanEndless != 0; !d.endless {
		if p.End, ok = d.bound(); !ok {
			return p, false
		}
		d.last = p.End
	}
	keys, ok := d.number(math.MaxInt64)
	p.Keys, d.begun = int64(keys), true
	return p, ok && !p.Empty()
}

func (d *countsDecoder) bound() (key []byte, ok bool) {
	same, ok1 := d.number(uint64(len(d.last)))
	rest, ok2 := d.number(uint64(len(d.left)))
	if !ok1 || !ok2 || rest > uint64(len(d.left)) || same+rest > MaxInternalKey {
		return nil, false
	}
	key = append(append(make([]byte, 0, same+rest), d.last[:same]...), d.left[:rest]...)
	d.left = d.left[rest:]
	return key, true
}

// number returns the next number, if it is at most most.
func (d *countsDecoder) number(most uint64) (uint64, bool) {
	v, n := binary.Uvarint(d.left)
	if n <= 0 || v > most {
		return 0, false
	}
	d.left = d.left[n:]
	return v, true
}
