package coder

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// Change is one key's change as a log row holds it. The value is in the version
// row (Key, Revision).
type Change struct {
	Revision int64
	Sub      int32
	Key      []byte
	// PrevRevision is the revision of the version that this one replaced, 0 if the key did not exist.
	PrevRevision int64
	// PrevTombstone is that of the key's tombstone, if the key did not exist and the table had one. Its version row
	// was written with the first change after it.
	PrevTombstone int64
	Tombstone     bool
}

// Deletion returns the record of a change that is a tombstone. It does not keep the log row.
func (c *Change) Deletion() *Record {
	return &Record{Key: bytes.Clone(c.Key), ModRevision: c.Revision, Sub: c.Sub, Tombstone: true}
}

// MaxLogRow is the size in bytes above which a commit's log is split into more
// rows; it keeps a row inside TiDB's and MySQL's limits.
const MaxLogRow = 1 << 20

// kindCreated is the kind of a change that created a key of which the table had a tombstone.
const kindCreated = 2

// EncodeLogKey returns the key of part part (counted from 1) of the log of the
// commit whose newest revision is rev. Log rows sort by revision.
func EncodeLogKey(rev int64, part uint16) []byte {
	b := make([]byte, 0, magicLen+revLen+2)
	b = append(b, magicLog...)
	b = binary.BigEndian.AppendUint64(b, uint64(rev))
	return binary.BigEndian.AppendUint16(b, part)
}

// DecodeLogKey is the inverse of EncodeLogKey.
func DecodeLogKey(internal []byte) (rev int64, part uint16, err error) {
	if len(internal) != magicLen+revLen+2 || string(internal[:magicLen]) != magicLog {
		return 0, 0, fmt.Errorf("%w: log key %x", ErrMalformed, internal)
	}
	return int64At(internal, magicLen), binary.BigEndian.Uint16(internal[magicLen+revLen:]), nil
}

// LogBounds returns the range [lo, hi) of the log rows of commits whose newest
// revision lies in [from, to]. Every change of a revision r in that interval is
// in a row at or after from; a commit of several revisions that ends after to
// is not included.
func LogBounds(from, to int64) (lo, hi []byte) {
	hi = nextMagic(magicLog)
	if to < math.MaxInt64 {
		hi = EncodeLogKey(to+1, 0)
	}
	return EncodeLogKey(from, 0), hi
}

// EncodeLog returns the values of the log rows of a commit at that time, in part order. Changes
// must be in ascending (Revision, Sub) order.
//
//	format(1) uvarint time, then for each change:
//	uvarint revision, uvarint sub, kind(1), uvarint prev_revision, uvarint len(key), key
//
// The kind is 0, 1 for a tombstone, or 2 if prev_revision is that of a tombstone.
//
// The time is in milliseconds since 1970, which takes 6 bytes until the year 2109. All changes of a
// commit share it, and each part has it.
func EncodeLog(at time.Time, changes []Change) [][]byte {
	var rows [][]byte
	size := 1 + binary.MaxVarintLen64
	for _, c := range changes {
		size += len(c.Key) + 2*binary.MaxVarintLen64 // about
	}
	b := append(make([]byte, 0, min(size, MaxLogRow)), formatV1)
	b = binary.AppendUvarint(b, uint64(max(at.UnixMilli(), 0)))
	head := b[:len(b):len(b)]
	for _, c := range changes {
		if len(b) > len(head) && len(b)+len(c.Key)+4*binary.MaxVarintLen64 > MaxLogRow {
			rows = append(rows, b)
			b = bytes.Clone(head)
		}
		b = binary.AppendUvarint(b, uint64(c.Revision))
		b = binary.AppendUvarint(b, uint64(c.Sub))
		kind, prev := flags(c.Tombstone), c.PrevRevision
		if c.PrevTombstone != 0 {
			kind, prev = kindCreated, c.PrevTombstone
		}
		b = append(b, kind)
		b = binary.AppendUvarint(b, uint64(prev))
		b = binary.AppendUvarint(b, uint64(len(c.Key)))
		b = append(b, c.Key...)
	}
	return append(rows, b)
}

// DecodeLogTime returns when the commit of a log row was made, to the millisecond.
func DecodeLogTime(b []byte) (time.Time, error) {
	at, _, err := logHead(b)
	return at, err
}

// logHead returns the time of a log row, and its changes, encoded.
func logHead(row []byte) (at time.Time, changes []byte, err error) {
	if len(row) == 0 || row[0] != formatV1 {
		return time.Time{}, nil, malformed(row, "log value")
	}
	ms, n := binary.Uvarint(row[1:])
	if n <= 0 || ms > math.MaxInt64 {
		return time.Time{}, nil, malformed(row, "time of a log value")
	}
	return time.UnixMilli(int64(ms)), row[1+n:], nil
}

// DecodeLog returns the changes of one log row. Their keys alias b.
func DecodeLog(b []byte) ([]Change, error) {
	row := b
	bad := func() error { return malformed(row, "log value") }
	_, b, err := logHead(row)
	if err != nil {
		return nil, err
	}
	next := func() (v uint64, ok bool) {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, false
		}
		b = b[n:]
		return v, true
	}
	var changes []Change
	for len(b) > 0 {
		rev, ok1 := next()
		sub, ok2 := next()
		if !ok1 || !ok2 || sub > math.MaxInt32 || len(b) == 0 {
			return nil, bad()
		}
		kind := b[0]
		b = b[1:]
		prev, ok3 := next()
		n, ok4 := next()
		if !ok3 || !ok4 || n > uint64(len(b)) || kind > kindCreated || kind == kindCreated && prev == 0 {
			return nil, bad()
		}
		c := Change{
			Revision: int64(rev), Sub: int32(sub), PrevRevision: int64(prev), Key: b[:n:n], Tombstone: kind == flagTombstone,
		}
		if kind == kindCreated {
			c.PrevRevision, c.PrevTombstone = 0, int64(prev)
		}
		changes = append(changes, c)
		b = b[n:]
	}
	return changes, nil
}
