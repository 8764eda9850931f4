package coder

import (
	"encoding/binary"
	"fmt"
)

// Lease is the content of a lease row. Times are in seconds.
type Lease struct {
	ID  int64
	TTL int64
	// Remaining is the remaining time at the last checkpoint, 0 for a full TTL.
	Remaining int64
	// Policy is set on leases that a TTL policy made, not a client.
	Policy bool
	// Revoking is set on leases whose revocation has begun and takes several
	// commits: they take no keys and no renewals.
	Revoking bool
}

const (
	flagPolicy   = 1
	flagRevoking = 2
	leaseLen     = 1 + 1 + 8 + 8
)

// EncodeLeaseKey returns the internal key of the row of lease id, which is not 0.
// Rows sort by id.
func EncodeLeaseKey(id int64) []byte {
	return appendLeaseID([]byte(magicLease), id)
}

// LeaseBounds returns the range of all lease rows.
func LeaseBounds() (lo, hi []byte) { return []byte(magicLease), nextMagic(magicLease) }

// EncodeLease returns the value of l's row: format(1) flags(1) ttl(8) remaining(8).
func EncodeLease(l Lease) []byte {
	b := make([]byte, 0, leaseLen)
	var f byte
	if l.Policy {
		f = flagPolicy
	}
	if l.Revoking {
		f |= flagRevoking
	}
	return appendInt64s(append(b, formatV1, f), l.TTL, l.Remaining)
}

// DecodeLease is the inverse of EncodeLeaseKey and EncodeLease.
func DecodeLease(internal, b []byte) (Lease, error) {
	if len(internal) != magicLen+8 || string(internal[:magicLen]) != magicLease || len(b) != leaseLen || b[0] != formatV1 {
		return Lease{}, malformed(b, "lease row %x", internal)
	}
	return Lease{
		ID: leaseIDAt(internal), Policy: b[1]&flagPolicy != 0, Revoking: b[1]&flagRevoking != 0, TTL: int64At(b, 2),
		Remaining: int64At(b, 10),
	}, nil
}

// EncodeAttachmentKey returns the internal key of the row that says that lease
// id holds raw. Its value is Empty.
func EncodeAttachmentKey(id int64, raw []byte) []byte {
	b := make([]byte, 0, magicLen+8+escapedLen(raw)+1)
	b = appendLeaseID(append(b, magicAttach...), id)
	b = appendEscaped(b, raw)
	return append(b, split)
}

// DecodeAttachmentKey is the inverse of EncodeAttachmentKey.
func DecodeAttachmentKey(internal []byte) (id int64, raw []byte, err error) {
	end := len(internal) - 1
	if end < magicLen+8 || string(internal[:magicLen]) != magicAttach || internal[end] != split {
		return 0, nil, fmt.Errorf("%w: attachment key %x", ErrMalformed, internal)
	}
	raw, err = unescape(internal[magicLen+8 : end])
	return leaseIDAt(internal), raw, err
}

// AttachmentBounds returns the range of the attachment rows of lease id, which
// sort by raw key.
func AttachmentBounds(id int64) (lo, hi []byte) {
	lo = appendLeaseID([]byte(magicAttach), id)
	// No escaped key starts below '$' or with 0xff, so the next id is the bound. The
	// largest id is followed by the next magic.
	hi = appendLeaseID([]byte(magicAttach), id+1)
	if id+1 < id {
		hi = nextMagic(magicAttach)
	}
	return lo, hi
}

// AllAttachmentBounds returns the range of the attachment rows of all leases.
func AllAttachmentBounds() (lo, hi []byte) { return []byte(magicAttach), nextMagic(magicAttach) }

// appendLeaseID writes id so that rows sort by its signed value.
func appendLeaseID(b []byte, id int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(id)^(1<<63))
}

func leaseIDAt(internal []byte) int64 { return int64(uint64(int64At(internal, magicLen)) ^ (1 << 63)) }
