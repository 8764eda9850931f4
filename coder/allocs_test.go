package coder

import (
	"bytes"
	"testing"
)

// TestCodingAllocatesOnlyItsResult bounds the allocations of what runs for each row
// of each read and write: a result is one allocation, a look at bytes is none, rows that grow are a few.
func TestCodingAllocatesOnlyItsResult(t *testing.T) {
	raw, end := []byte("/registry/pods/kube-system/coredns-5d78c9869d-abcde"), []byte("/registry/pods/kube-system0")
	record := &Record{Key: raw, Value: bytes.Repeat([]byte{'v'}, 512), CreateRevision: 1, ModRevision: 9, Version: 3}
	index := Index{ModRevision: 9, PrevRevision: 5, CreateRevision: 1, Version: 3}
	versionKey, indexKey, version, indexValue := EncodeVersionKey(raw, 9), EncodeIndexKey(raw), EncodeVersion(record),
		EncodeIndex(index)
	token := EncodeFenceToken(FenceToken{Sequence: 8, Term: 3, Revision: 77})
	changes := []Change{{Revision: 9, Key: raw, PrevRevision: 5}, {Revision: 10, Key: raw, PrevRevision: 9}}
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		most float64
		do   func()
	}{
		{"EncodeVersionKey", 1, func() { EncodeVersionKey(raw, 9) }},
		{"EncodeIndexKey", 1, func() { EncodeIndexKey(raw) }},
		{"DecodeVersionKey", 1, func() { _, _, err := DecodeVersionKey(versionKey); check(err) }},
		{"DecodeIndexKey", 1, func() { _, err := DecodeIndexKey(indexKey); check(err) }},
		{"EncodeVersion", 1, func() { EncodeVersion(record) }},
		{"DecodeVersion", 1, func() { _, err := DecodeVersion(raw, 9, version); check(err) }},
		{"EncodeIndex", 1, func() { EncodeIndex(index) }},
		{"DecodeIndex", 0, func() { _, err := DecodeIndex(indexValue); check(err) }},
		{"EncodeFenceToken", 1, func() { EncodeFenceToken(FenceToken{Sequence: 8, Term: 3, Revision: 77}) }},
		{"DecodeFenceToken", 0, func() { _, err := DecodeFenceToken(token); check(err) }},
		{"EncodeLogKey", 1, func() { EncodeLogKey(9, 0) }},
		{"EncodeLog", 5, func() { EncodeLog(changes) }},
		{"IndexBounds", 2, func() { IndexBounds(raw, end) }},
		{"VersionsUpTo", 2, func() { VersionsUpTo(raw, 9) }},
		{"CheckKey", 0, func() { check(CheckKey(raw)) }},
		{"Contains", 0, func() { Contains(raw, end, raw) }},
		{"RowVersions", 0, func() { RowVersions(indexValue) }},
		{"HasRowVersion", 0, func() { HasRowVersion(indexKey) }},
	} {
		if got := testing.AllocsPerRun(100, c.do); got > c.most {
			t.Errorf("%s allocates %v times, at most %v are due", c.name, got, c.most)
		}
	}
}
