package coder

import "bytes"

// Span is the keys of [Start, End). A nil End is after every key.
type Span struct{ Start, End []byte }

// Contains reports whether key lies in s.
func (s Span) Contains(key []byte) bool {
	return bytes.Compare(key, s.Start) >= 0 && (s.End == nil || bytes.Compare(key, s.End) < 0)
}

// Empty reports whether no key lies in s.
func (s Span) Empty() bool { return !EndBefore(s.Start, s.End) }

// IndexBounds returns the bounds of the index rows of the keys of s.
func (s Span) IndexBounds() (lo, hi []byte) {
	if s.End == nil {
		return IndexBounds(s.Start, []byte{0})
	}
	return IndexBounds(s.Start, s.End)
}

// EndBefore reports whether a lies before b, of which each is the end of a span: nil is
// after every key.
func EndBefore(a, b []byte) bool {
	switch {
	case a == nil:
		return false
	case b == nil:
		return true
	default:
		return bytes.Compare(a, b) < 0
	}
}

// KeyAfter returns the smallest key greater than key.
func KeyAfter(key []byte) []byte {
	next := make([]byte, len(key)+1)
	copy(next, key)
	return next
}
