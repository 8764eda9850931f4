package coder

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// came checks one decoder's result: an error must be ErrMalformed, and what was decoded
// must be decoded again from what it encodes to. exact says that b, too, must be what it
// encodes to: that b has no bits that this version does not know.
func came[T any](t *testing.T, kind string, b []byte, got T, err error, encode func(T) []byte,
	decode func([]byte) (T, error), exact bool) {
	t.Helper()
	if err != nil {
		require.ErrorIs(t, err, ErrMalformed, "%s %x", kind, b)
		return
	}
	again := encode(got)
	if exact {
		require.Equal(t, b, again, "%s %x decodes to %+v", kind, b, got)
	}
	back, err := decode(again)
	require.NoError(t, err, "%s %x", kind, b)
	require.Equal(t, got, back, "%s %x", kind, b)
}

// FuzzDecodeKeys: no bytes of a key column make a decoder panic, or lie.
func FuzzDecodeKeys(f *testing.F) {
	for _, seed := range [][]byte{
		{}, []byte(magicIndex), EncodeIndexKey([]byte("a%$\x00\xff")), EncodeVersionKey([]byte("a"), -1), EncodeLeaseKey(-1),
		EncodeAuthKey(AuthRole, "\xff$"), EncodeTokenKey(HashToken("t")), AuthSettingsKey(), []byte(magicAuth + "u%"),
		[]byte(magicAttach + "12345678%$"),
	} {
		f.Add(seed)
	}
	for _, row := range formats() {
		f.Add(row.bytes)
	}
	type version struct {
		raw []byte
		rev int64
	}
	type log struct {
		rev  int64
		part uint16
	}
	type attachment struct {
		id  int64
		raw []byte
	}
	type auth struct {
		kind AuthKind
		name string
	}
	type alarm struct {
		member uint64
		alarm  int32
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		check := func(kind string, decode func([]byte) (any, error), encode func(any) []byte) {
			got, err := decode(b)
			came(t, kind, b, got, err, encode, decode, true)
		}
		check("index key", func(b []byte) (any, error) { return DecodeIndexKey(b) },
			func(v any) []byte { return EncodeIndexKey(v.([]byte)) })
		check("version key", func(b []byte) (any, error) {
			raw, rev, err := DecodeVersionKey(b)
			return version{raw, rev}, err
		},
			func(v any) []byte { x := v.(version); return EncodeVersionKey(x.raw, x.rev) })
		check("log key", func(b []byte) (any, error) { rev, part, err := DecodeLogKey(b); return log{rev, part}, err },
			func(v any) []byte { x := v.(log); return EncodeLogKey(x.rev, x.part) })
		check("attachment key", func(b []byte) (any, error) {
			id, raw, err := DecodeAttachmentKey(b)
			return attachment{id, raw}, err
		},
			func(v any) []byte { x := v.(attachment); return EncodeAttachmentKey(x.id, x.raw) })
		check("auth key", func(b []byte) (any, error) { kind, name, err := DecodeAuthKey(b); return auth{kind, name}, err },
			func(v any) []byte { x := v.(auth); return EncodeAuthKey(x.kind, x.name) })
		check("token key", func(b []byte) (any, error) { return DecodeTokenKey(b) },
			func(v any) []byte { return EncodeTokenKey(v.(TokenHash)) })
		check("alarm key", func(b []byte) (any, error) { member, a, err := DecodeAlarmKey(b); return alarm{member, a}, err },
			func(v any) []byte { x := v.(alarm); return EncodeAlarmKey(x.member, x.alarm) })
		_ = HasRowVersion(b) // must not panic
	})
}

// FuzzDecodeValues: no bytes of a value column make a decoder panic, or lie.
func FuzzDecodeValues(f *testing.F) {
	for _, seed := range [][]byte{
		{}, {formatV1}, EncodeIndex(Index{ModRevision: math.MaxInt64, PrevRevision: math.MaxInt64 - 1, Tombstone: true}),
		EncodeVersion(&Record{Value: []byte("v"), CreateRevision: -1, Sub: -2, Tombstone: true}),
		EncodeLog(someTime, []Change{{Revision: 3, Key: []byte("k")},
			{Revision: -1, Sub: 1, Tombstone: true, PrevRevision: 2}, {Revision: 4, PrevTombstone: 3}})[0],
		EncodeFenceToken(FenceToken{Sequence: 4, Term: 1, Revision: 9}.Resigned()), EncodeLock(3, nil), EncodeInt64(-7),
		EncodeToken(Token{User: "u\xff", Epoch: 1}), EncodeToken(Token{User: "u", Until: 1}), Empty(),
		EncodeCounts(Counts{}), EncodeJob(Job{Kind: JobRevert}),
	} {
		f.Add(seed)
	}
	for _, row := range formats() {
		f.Add(row.bytes)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := DecodeIndex(b)
		came(t, "index", b, x, err, EncodeIndex, DecodeIndex, err == nil && b[indexFlagsOffset] <= flagTombstone|flagGap)

		decodeVersion := func(b []byte) (*Record, error) { return DecodeVersion([]byte("k"), 5, b) }
		r, err := decodeVersion(b)
		came(t, "version", b, r, err, EncodeVersion, decodeVersion, err == nil && b[1] <= flagTombstone)

		type logRow struct {
			ms      int64
			changes []Change
		}
		decodeLog := func(b []byte) (logRow, error) {
			at, err := DecodeLogTime(b)
			if err != nil {
				return logRow{}, err
			}
			changes, err := DecodeLog(b)
			return logRow{at.UnixMilli(), changes}, err
		}
		row, err := decodeLog(b)
		one := func(row logRow) []byte { return EncodeLog(time.UnixMilli(row.ms), row.changes)[0] }
		// A number may be written longer than it need be, which nothing here does; a
		// log longer than a row comes back as several.
		if len(b) < MaxLogRow/2 {
			came(t, "log", b, row, err, one, decodeLog, false)
		}

		decodeLease := func(b []byte) (Lease, error) { return DecodeLease(EncodeLeaseKey(7), b) }
		l, err := decodeLease(b)
		came(t, "lease", b, l, err, EncodeLease, decodeLease, err == nil && b[1] <= flagPolicy)
		if _, err := DecodeLease(b, EncodeLease(Lease{})); err == nil && !bytes.Equal(b, EncodeLeaseKey(leaseIDAt(b))) {
			t.Fatalf("%x is taken for the key of a lease", b)
		}

		c, err := DecodeFenceToken(b)
		lost, lerr := DecodeDataLoss(b)
		came(t, "lost", b, lost, lerr, EncodeDataLoss, DecodeDataLoss, true)
		came(t, "token", b, c, err, EncodeFenceToken, DecodeFenceToken, err == nil &&
			int64At(b, prevRowVersionOffset) == c.Sequence-1)

		type lock struct {
			sequence int64
			record   []byte
		}
		decodeLock := func(b []byte) (lock, error) {
			sequence, record, err := DecodeLock(b)
			return lock{sequence, record}, err
		}
		k, err := decodeLock(b)
		came(t, "lock", b, k, err, func(k lock) []byte { return EncodeLock(k.sequence, k.record) }, decodeLock, true)

		counts, err := DecodeCounts(b)
		came(t, "counts", b, counts, err, EncodeCounts, DecodeCounts, false)
		b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)) // else next to nothing would be decoded
		counts, err = DecodeCounts(b)
		came(t, "counts", b, counts, err, EncodeCounts, DecodeCounts, false)
		b = b[:len(b)-countsTail]

		n, err := DecodeInt64(b)
		came(t, "number", b, n, err, EncodeInt64, DecodeInt64, true)
		j, err := DecodeJob(b)
		came(t, "job", b, j, err, EncodeJob, DecodeJob, true)
		s, err := DecodeAuthSettings(b)
		came(t, "auth settings", b, s, err, EncodeAuthSettings, DecodeAuthSettings, true)
		token, err := DecodeToken(b)
		came(t, "token", b, token, err, EncodeToken, DecodeToken, true)
		content, err := DecodeAuthValue(b)
		came(t, "auth value", b, content, err, EncodeAuthValue, DecodeAuthValue, true)

		own, prev, ok := RowVersions(b)
		if ok != (len(b) >= rowVersionLen) || ok && (own != int64(binary.BigEndian.Uint64(b[1:])) ||
			prev != int64(binary.BigEndian.Uint64(b[9:]))) {
			t.Fatalf("row versions of %x: %d, %d, %v", b, own, prev, ok)
		}
	})
}
