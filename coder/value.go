package coder

import (
	"encoding/binary"
	"fmt"
)

// Record is one version of one key, as etcd's mvccpb.KeyValue has it. A
// tombstone keeps only Key, ModRevision and Sub. Records are shared between
// caches, readers and watchers, and must not be changed once made.
type Record struct {
	Key            []byte
	Value          []byte
	CreateRevision int64
	ModRevision    int64
	Version        int64
	Lease          int64
	// Sub numbers the changes of one revision from 0, in execution order.
	Sub       int32
	Tombstone bool
}

// Index is the newest version's metadata of one key.
type Index struct {
	ModRevision int64
	// PrevRevision is the ModRevision of the row value this one replaced, 0 if
	// there was none. Unless Gap is set it is also the version before this one.
	PrevRevision   int64
	CreateRevision int64 // 0 on a tombstone, as Version and Lease are
	Version        int64
	Lease          int64
	Tombstone      bool
	// Gap says that versions lie between PrevRevision and ModRevision: one
	// commit changed the key more than once.
	Gap bool
}

const (
	formatV1 = 1

	flagTombstone = 1
	flagGap       = 2

	// Offsets in a versioned value, counted from 0. SQL counts from 1.
	rowVersionOffset     = 1
	prevRowVersionOffset = rowVersionOffset + 8
	rowVersionLen        = prevRowVersionOffset + 8

	indexFlagsOffset = 41
	indexLen         = 42
	versionHeaderLen = 30
)

// EncodeIndex returns the value of an index row:
//
//	format(1) mod_revision(8) prev_revision(8) create_revision(8) version(8) lease(8) flags(1)
//
// mod_revision is the row version, prev_revision the one it replaces.
func EncodeIndex(x Index) []byte {
	b := make([]byte, 0, indexLen)
	b = append(b, formatV1)
	b = appendInt64s(b, x.ModRevision, x.PrevRevision, x.CreateRevision, x.Version, x.Lease)
	f := flags(x.Tombstone)
	if x.Gap {
		f |= flagGap
	}
	return append(b, f)
}

// DecodeIndex is the inverse of EncodeIndex.
func DecodeIndex(b []byte) (Index, error) {
	if len(b) != indexLen || b[0] != formatV1 {
		return Index{}, malformed(b, "index value %x", b)
	}
	return Index{
		ModRevision:    int64At(b, 1),
		PrevRevision:   int64At(b, 9),
		CreateRevision: int64At(b, 17),
		Version:        int64At(b, 25),
		Lease:          int64At(b, 33),
		Tombstone:      b[indexFlagsOffset]&flagTombstone != 0,
		Gap:            b[indexFlagsOffset]&flagGap != 0,
	}, nil
}

// EncodeVersion returns the value of r's version row:
//
//	format(1) flags(1) create_revision(8) version(8) lease(8) sub(4) value
func EncodeVersion(r *Record) []byte {
	b := make([]byte, 0, versionHeaderLen+len(r.Value))
	b = append(b, formatV1, flags(r.Tombstone))
	b = appendInt64s(b, r.CreateRevision, r.Version, r.Lease)
	b = binary.BigEndian.AppendUint32(b, uint32(r.Sub))
	return append(b, r.Value...)
}

// EncodeTombstone returns the value of the version row of a tombstone, which is written when another version
// follows: until then the index row says all. Its Sub is in the log only.
func EncodeTombstone() []byte { return EncodeVersion(&Record{Tombstone: true}) }

// DecodeVersion returns the record whose version row has the raw key key, the
// revision rev and the value b. The record's Value aliases b.
func DecodeVersion(key []byte, rev int64, b []byte) (*Record, error) {
	if len(b) < versionHeaderLen || b[0] != formatV1 {
		return nil, malformed(b, "version value of %q at revision %d", key, rev)
	}
	return &Record{
		Key:            key,
		Value:          b[versionHeaderLen:len(b):len(b)],
		ModRevision:    rev,
		CreateRevision: int64At(b, 2),
		Version:        int64At(b, 10),
		Lease:          int64At(b, 18),
		Sub:            int32(binary.BigEndian.Uint32(b[26:])),
		Tombstone:      b[1]&flagTombstone != 0,
	}, nil
}

// Record returns the version x describes, without its value.
func (x Index) Record(key []byte) *Record {
	return &Record{
		Key: key, ModRevision: x.ModRevision, CreateRevision: x.CreateRevision,
		Version: x.Version, Lease: x.Lease, Tombstone: x.Tombstone,
	}
}

// HasRowVersion reports whether rows of this internal key are versioned rows: changed
// in place, key ending in eight zero bytes.
func HasRowVersion(internal []byte) bool {
	n := len(internal)
	return n > magicLen+revLen && binary.BigEndian.Uint64(internal[n-revLen:]) == 0
}

// RowVersions returns a versioned value's row version and the one it replaces, or false if
// the value is too short to hold them.
func RowVersions(value []byte) (own, prev int64, ok bool) {
	if len(value) < rowVersionLen {
		return 0, 0, false
	}
	return int64At(value, rowVersionOffset), int64At(value, prevRowVersionOffset), true
}

// malformed returns the error of a value that cannot be decoded. A newer version writes formats that this one does not
// read.
func malformed(value []byte, what string, args ...any) error {
	what = fmt.Sprintf(what, args...)
	if len(value) > 0 && value[0] > formatV1 {
		return fmt.Errorf("%w: %s: it has format %d, which this version does not read: a newer one wrote it, "+
			"or it is damaged", ErrMalformed, what, value[0])
	}
	return fmt.Errorf("%w: %s", ErrMalformed, what)
}

func flags(tombstone bool) byte {
	if tombstone {
		return flagTombstone
	}
	return 0
}

func appendInt64s(b []byte, vs ...int64) []byte {
	for _, v := range vs {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func int64At(b []byte, i int) int64 { return int64(binary.BigEndian.Uint64(b[i:])) }
