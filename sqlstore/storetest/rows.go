package storetest

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
)

// versionedKey and versioned make rows that may be compared by their row versions.
func versionedKey(name string) []byte {
	return coder.EncodeIndexKey([]byte(name))
}

// versioned returns the value of a versioned row: format, row version, the row version it replaces, and rest.
func versioned(own, prev int64, rest string) []byte {
	b := binary.BigEndian.AppendUint64([]byte{1}, uint64(own))
	b = binary.BigEndian.AppendUint64(b, uint64(prev))
	return append(b, rest...)
}

// awkward are bytes that text protocols, escapes and collations may handle wrongly.
var awkward = func() []byte {
	var b []byte
	for c := range 256 {
		b = append(b, byte(c))
	}
	return append(b, "'\"\\\\''`?%_;-- \x00\x1a\r\n\t$1:name@p"...)
}()

// keysOfAllBytes returns, in order, keys that a collation, a padding comparison
// or an escape would order or equate wrongly.
func keysOfAllBytes() [][]byte {
	var keys [][]byte
	for c := range 256 {
		keys = append(keys, []byte{byte(c)}, []byte{'k', byte(c)}, []byte{byte(c), 0}, []byte{byte(c), 0xff, 0xff})
	}
	keys = append(keys,
		[]byte("ABC"), []byte("abc"), []byte("Abc"), []byte("abc "), []byte("abc  "), []byte("abc\x00"),
		[]byte("abc\x00\x00"), []byte("ä"), []byte("Ä"), []byte("a\u0308"), []byte("\xc3"), []byte("ß"), []byte("ss"),
		awkward,
		bytes.Repeat([]byte{0x80}, coder.MaxInternalKey), bytes.Repeat([]byte{0x80}, coder.MaxInternalKey-1),
		append(bytes.Repeat([]byte{0x80}, coder.MaxInternalKey-1), 0x81),
	)
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal)
}

// indexOf returns the index entry of r, which replaced the row whose row version is
// prev (0: there was none). Every third one has the gap flag, which a read must not
// confuse with the tombstone flag in the same byte.
func indexOf(r *coder.Record, prev int64) coder.Index {
	return coder.Index{
		ModRevision: r.ModRevision, PrevRevision: prev, CreateRevision: r.CreateRevision,
		Version: r.Version, Lease: r.Lease, Tombstone: r.Tombstone, Gap: r.ModRevision%3 == 0,
	}
}
