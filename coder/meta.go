package coder

import (
	"encoding/binary"
	"fmt"
)

// FenceToken is the content of the fence row: the one row every commit compares and
// swaps. It fences a deposed leader, holds the durable revision, and is the
// witness of what a commit with an unknown outcome did.
type FenceToken struct {
	// Sequence is the row version: every change of the row, by any member, raises it by
	// one, so that no expected value can ever match again later. The proof of a loss
	// changes Attempt alone: with a higher sequence, other members would miss the loss.
	Sequence int64
	// Term counts leaderships. Only the leader of Term writes it, except for the proof of a loss.
	Term int64
	// Revision is the newest committed revision.
	Revision int64
	// Attempt is raised to invalidate a commit whose outcome is unknown. It
	// distinguishes such a raise from the commit itself, which may carry no revision.
	// The proof of a loss raises it too, because a compare-and-swap must change the row.
	Attempt int64
	// Bytes are what the commits of all leaders have added to the counted rows (see CountedBounds), less what they have
	// removed. Less what the removed row says, it is what these rows take. 0: they have not been counted.
	Bytes int64
}

// resignedAttempt replaces the count of attempts, which starts at 0, once the leader of the
// term has stopped leading: it will neither commit nor answer again.
const resignedAttempt = -1

// Resigned returns c as its leader writes it when it stops leading.
func (c FenceToken) Resigned() FenceToken {
	c.Sequence++
	c.Attempt = resignedAttempt
	return c
}

// IsResigned reports whether the leader of c's term has said that it stopped.
func (c FenceToken) IsResigned() bool { return c.Attempt == resignedAttempt }

const tokenLen = 1 + 6*8

// FenceKey is the internal key of the fence row, a versioned row.
func FenceKey() []byte {
	return append([]byte(magicMeta+"fence"), 0, 0, 0, 0, 0, 0, 0, 0)
}

// EncodeFenceToken returns the fence row's value:
//
//	format(1) sequence(8) sequence-1(8) term(8) revision(8) attempt(8) bytes(8)
func EncodeFenceToken(c FenceToken) []byte {
	b := make([]byte, 0, tokenLen)
	b = append(b, formatV1)
	return appendInt64s(b, c.Sequence, c.Sequence-1, c.Term, c.Revision, c.Attempt, c.Bytes)
}

// DecodeFenceToken is the inverse of EncodeFenceToken.
func DecodeFenceToken(b []byte) (FenceToken, error) {
	if len(b) != tokenLen || b[0] != formatV1 {
		return FenceToken{}, malformed(b, "fencing token %x", b)
	}
	return FenceToken{
		Sequence: int64At(b, 1),
		Term:     int64At(b, 17),
		Revision: int64At(b, 25),
		Attempt:  int64At(b, 33),
		Bytes:    int64At(b, 41),
	}, nil
}

// LockKey is the internal key of the lock row, a versioned row: who leads, or is to.
// It decides who tries to lead; the fence row decides whose commits count.
func LockKey() []byte {
	return append([]byte(magicMeta+"lock"), 0, 0, 0, 0, 0, 0, 0, 0)
}

// EncodeLock returns the lock row's value:
//
//	format(1) sequence(8) sequence-1(8) record
//
// sequence is the row version: 1 when the row is created, one more with every
// change by any member. The election defines record.
func EncodeLock(sequence int64, record []byte) []byte {
	b := make([]byte, 0, rowVersionLen+len(record))
	b = append(b, formatV1)
	b = appendInt64s(b, sequence, sequence-1)
	return append(b, record...)
}

// DecodeLock is the inverse of EncodeLock. The record aliases b.
func DecodeLock(b []byte) (sequence int64, record []byte, err error) {
	own, prev, ok := RowVersions(b)
	if !ok || b[0] != formatV1 || own < 1 || prev != own-1 {
		return 0, nil, malformed(b, "lock value %x", b)
	}
	return own, b[rowVersionLen:], nil
}

// CompactKey is the internal key of the compaction mark.
func CompactKey() []byte { return []byte(magicMeta + "compact") }

// ClaimKey is the internal key of the claim row: a random number that the leader writes before
// it removes compacted rows. They are removed on condition that the row holds it, and each
// removal raises it by one.
func ClaimKey() []byte { return []byte(magicMeta + "claim") }

// RemovedKey is the internal key of the removed row: how many bytes of counted rows compaction has removed in all. Each
// removal raises it.
func RemovedKey() []byte { return []byte(magicMeta + "removed") }

// CountedKey is the internal key of the row that says when the bytes of all rows were counted last, in seconds since
// 1970.
func CountedKey() []byte { return []byte(magicMeta + "counted") }

// CountedBounds returns the range of the rows whose bytes commits count: index, version, log, lease and attachment
// rows.
func CountedBounds() (lo, hi []byte) { return []byte(magicIndex), []byte(magicAuth) }

// IsCounted reports whether commits count the bytes of the row that internal is the key of.
func IsCounted(internal []byte) bool {
	return string(internal[:min(len(internal), magicLen)]) < magicAuth
}

// UncountedBounds returns the range of all other rows, which are few: those of users, tokens, members and the server.
func UncountedBounds() (lo, hi []byte) { return []byte(magicAuth), nextMagic(magicMeta) }

// ProbeKey is the internal key of a row that says nothing: members write it to see
// whether they can. Its value is when that was, by the clock of who did.
func ProbeKey() []byte { return []byte(magicMeta + "probe") }

// IdentityKey is the internal key of the cluster's identity.
func IdentityKey() []byte { return []byte(magicMeta + "identity") }

// EncodeInt64 and DecodeInt64 code the value of a row that holds one number:
// format(1) number(8).
func EncodeInt64(v int64) []byte { return appendInt64s([]byte{formatV1}, v) }

// DecodeInt64 is the inverse of EncodeInt64.
func DecodeInt64(b []byte) (int64, error) {
	if len(b) != 9 || b[0] != formatV1 {
		return 0, malformed(b, "number %x", b)
	}
	return int64At(b, 1), nil
}

// EncodeAlarmKey returns the internal key of an alarm a member has raised. The
// row's value is empty but for the format byte.
func EncodeAlarmKey(member uint64, alarm int32) []byte {
	b := []byte(magicMeta + "alarm/")
	b = binary.BigEndian.AppendUint64(b, member)
	return binary.BigEndian.AppendUint32(b, uint32(alarm))
}

// DecodeAlarmKey is the inverse of EncodeAlarmKey.
func DecodeAlarmKey(internal []byte) (member uint64, alarm int32, err error) {
	const prefix = magicMeta + "alarm/"
	if len(internal) != len(prefix)+12 || string(internal[:len(prefix)]) != prefix {
		return 0, 0, fmt.Errorf("%w: alarm key %x", ErrMalformed, internal)
	}
	b := internal[len(prefix):]
	return binary.BigEndian.Uint64(b), int32(binary.BigEndian.Uint32(b[8:])), nil
}

// AlarmBounds returns the range of all alarm rows.
func AlarmBounds() (lo, hi []byte) { return []byte(magicMeta + "alarm/"), []byte(magicMeta + "alarm0") }

// EncodeMemberKey returns the internal key of a member's row; its value is the
// server's own.
func EncodeMemberKey(name string) []byte { return []byte(magicMember + name) }

// MemberBounds returns the range of all member rows.
func MemberBounds() (lo, hi []byte) { return []byte(magicMember), nextMagic(magicMember) }

// Empty is the value of rows that say all they have to say by existing.
func Empty() []byte { return []byte{formatV1} }
