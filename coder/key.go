package coder

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Magics of the row kinds. They sort in this order.
const (
	magicIndex   = "\x57\xfb\x80\x8a"
	magicVersion = "\x57\xfb\x80\x8b" // KubeBrain's
	magicLog     = "\x57\xfb\x80\x8c"
	magicLease   = "\x57\xfb\x80\x8d"
	magicAttach  = "\x57\xfb\x80\x8e"
	magicAuth    = "\x57\xfb\x80\x8f"
	magicMember  = "\x57\xfb\x80\x90"
	magicMeta    = "\x57\xfb\x80\x91"
)

const (
	magicLen = 4
	revLen   = 8
	split    = '$' // 0x24: below every byte an escaped key may hold
	escape   = '%' // 0x25

	// MaxInternalKey is the longest internal key, in bytes, that every engine
	// can index: InnoDB and TiDB end at 3072.
	MaxInternalKey = 3072

	// keyOverhead is what the longest coding adds to an escaped raw key.
	keyOverhead = magicLen + 1 + revLen
)

var (
	// ErrKeyTooLong says that a raw key does not fit the table once encoded.
	ErrKeyTooLong = errors.New("coder: key is too long")
	// ErrMalformed says that a row is not of the kind it was decoded as.
	ErrMalformed = errors.New("coder: malformed row")
)

// CheckKey returns ErrKeyTooLong, wrapped with the lengths, when raw does not
// fit: its escaped form may have MaxInternalKey-13 = 3059 bytes. Bytes 0x00 to
// 0x25 count twice.
func CheckKey(raw []byte) error {
	if n := escapedLen(raw) + keyOverhead; n > MaxInternalKey {
		return fmt.Errorf("%w: %d bytes encoded, at most %d fit", ErrKeyTooLong, n, MaxInternalKey)
	}
	return nil
}

// EncodeVersionKey returns the internal key of raw's version written at rev.
func EncodeVersionKey(raw []byte, rev int64) []byte {
	return encodeKey(magicVersion, raw, rev)
}

// EncodeIndexKey returns the internal key of raw's index row.
func EncodeIndexKey(raw []byte) []byte {
	return encodeKey(magicIndex, raw, 0)
}

// NamedVersionKey returns the internal key of the version row that an index row names.
func NamedVersionKey(key, index []byte) ([]byte, error) {
	raw, err := DecodeIndexKey(key)
	if err != nil {
		return nil, err
	}
	x, err := DecodeIndex(index)
	if err != nil {
		return nil, err
	}
	return EncodeVersionKey(raw, x.ModRevision), nil
}

func encodeKey(magic string, raw []byte, rev int64) []byte {
	b := make([]byte, 0, magicLen+escapedLen(raw)+1+revLen)
	b = append(b, magic...)
	b = appendEscaped(b, raw)
	b = append(b, split)
	return binary.BigEndian.AppendUint64(b, uint64(rev))
}

// DecodeVersionKey is the inverse of EncodeVersionKey.
func DecodeVersionKey(internal []byte) (raw []byte, rev int64, err error) {
	return decodeKey(magicVersion, internal)
}

// DecodeIndexKey is the inverse of EncodeIndexKey.
func DecodeIndexKey(internal []byte) (raw []byte, err error) {
	raw, rev, err := decodeKey(magicIndex, internal)
	if err == nil && rev != 0 {
		return nil, fmt.Errorf("%w: index key %x carries revision %d", ErrMalformed, internal, rev)
	}
	return raw, err
}

func decodeKey(magic string, internal []byte) (raw []byte, rev int64, err error) {
	end := len(internal) - revLen - 1
	if end < magicLen || string(internal[:magicLen]) != magic || internal[end] != split {
		return nil, 0, fmt.Errorf("%w: key %x", ErrMalformed, internal)
	}
	raw, err = unescape(internal[magicLen:end])
	if err != nil {
		return nil, 0, fmt.Errorf("key %x: %w", internal, err)
	}
	return raw, int64(binary.BigEndian.Uint64(internal[end+1:])), nil
}

// IndexBounds returns the half-open range [lo, hi) of the index rows of the raw
// keys etcd's key and range_end name: an empty end is the single key, an end of
// one zero byte is every key >= key, anything else is [key, end). An
// inverted range gives lo >= hi.
func IndexBounds(key, end []byte) (lo, hi []byte) { return bounds(magicIndex, key, end) }

// VersionBounds is IndexBounds for the version rows of the same keys.
func VersionBounds(key, end []byte) (lo, hi []byte) { return bounds(magicVersion, key, end) }

func bounds(magic string, key, end []byte) (lo, hi []byte) {
	lo = bound(magic, key, split)
	switch {
	case len(end) == 0:
		hi = bound(magic, key, split+1)
	case IsFromKey(end):
		hi = nextMagic(magic)
	default:
		hi = bound(magic, end, split)
	}
	return lo, hi
}

// VersionsUpTo returns the range [lo, hi) of raw's version rows with a revision
// of at most rev. The last row in it is the version a read at rev sees.
func VersionsUpTo(raw []byte, rev int64) (lo, hi []byte) {
	return bound(magicVersion, raw, split), EncodeVersionKey(raw, rev+1)
}

func bound(magic string, raw []byte, last byte) []byte {
	b := make([]byte, 0, magicLen+escapedLen(raw)+1)
	b = append(b, magic...)
	b = appendEscaped(b, raw)
	return append(b, last)
}

func nextMagic(magic string) []byte {
	b := []byte(magic)
	b[magicLen-1]++
	return b
}

// IsFromKey reports whether end is etcd's range end for "every key from here".
func IsFromKey(end []byte) bool { return len(end) == 1 && end[0] == 0 }

// Contains reports whether key, end (as in IndexBounds) covers raw.
func Contains(key, end, raw []byte) bool {
	switch {
	case len(end) == 0:
		return bytes.Equal(key, raw)
	case IsFromKey(end):
		return bytes.Compare(raw, key) >= 0
	default:
		return bytes.Compare(raw, key) >= 0 && bytes.Compare(raw, end) < 0
	}
}

func escapedLen(raw []byte) int {
	n := len(raw)
	for _, c := range raw {
		if c <= escape {
			n++
		}
	}
	return n
}

func appendEscaped(dst, raw []byte) []byte {
	for _, c := range raw {
		if c <= escape {
			dst = append(dst, escape)
		}
		dst = append(dst, c)
	}
	return dst
}

func unescape(b []byte) ([]byte, error) {
	raw := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c == escape {
			i++
			if i == len(b) || b[i] > escape {
				return nil, fmt.Errorf("%w: broken escape", ErrMalformed)
			}
			c = b[i]
		} else if c < escape {
			return nil, fmt.Errorf("%w: byte %#02x is not escaped", ErrMalformed, c)
		}
		raw = append(raw, c)
	}
	return raw, nil
}
