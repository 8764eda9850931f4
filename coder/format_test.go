package coder

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// format is a key or a value, and the bytes that it has to have.
type format struct {
	name  string
	bytes []byte
	want  string
}

// formats are of every kind. The fuzz tests decode them, and compare what that encodes to.
func formats() []format {
	raw := []byte("k%")
	return []format{
		{"version key", EncodeVersionKey(raw, 258), "57fb808b6b2525240000000000000102"},
		{"version", EncodeVersion(&Record{Value: []byte("v"), CreateRevision: 1, Version: 2, Lease: 3, Sub: 4}),
			"01000000000000000001000000000000000200000000000000030000000476"},
		{"tombstone", EncodeTombstone(), "010100000000000000000000000000000000000000000000000000000000"},
		{"index key", EncodeIndexKey(raw), "57fb808a6b2525240000000000000000"},
		{"index", EncodeIndex(Index{ModRevision: 1, PrevRevision: 2, CreateRevision: 3, Version: 4, Lease: 5, Gap: true}),
			"010000000000000001000000000000000200000000000000030000000000000004000000000000000502"},
		{"log key", EncodeLogKey(258, 1), "57fb808c00000000000001020001"},
		{"log", bytes.Join(EncodeLog(someTime, []Change{{Revision: 300, Sub: 1, PrevRevision: 2, Key: raw},
			{Revision: 301, Key: raw, Tombstone: true}, {Revision: 302, Key: raw, PrevTombstone: 301}}), nil),
			"0180b883a1f732ac02010002026b25ad02000100026b25ae020002ad02026b25"},
		{"lease key", EncodeLeaseKey(7), "57fb808d8000000000000007"},
		{"lease", EncodeLease(Lease{ID: 7, TTL: 60, Remaining: 30, Policy: true, Revoking: true}),
			"0103000000000000003c000000000000001e"},
		{"attachment key", EncodeAttachmentKey(7, raw), "57fb808e80000000000000076b252524"},
		{"fence key", FenceKey(), "57fb809166656e63650000000000000000"},
		{"fencing token", EncodeFenceToken(FenceToken{Sequence: 2, Term: 3, Revision: 4, Attempt: 5, Bytes: 6}),
			"01000000000000000200000000000000010000000000000003000000000000000400000000000000050000000000000006"},
		{"lock key", LockKey(), "57fb80916c6f636b0000000000000000"},
		{"lock", EncodeLock(2, []byte("{}")), "01000000000000000200000000000000017b7d"},
		{"lost", EncodeDataLoss(DataLoss{Sequence: 1, Term: 2, Revision: 3, Member: 4, At: 5}),
			"0100000000000000010000000000000002000000000000000300000000000000040000000000000005"},
		{"compaction mark", EncodeInt64(258), "010000000000000102"},
		{"claim key", ClaimKey(), "57fb8091636c61696d"},
		{"removed key", RemovedKey(), "57fb809172656d6f766564"},
		{"counted key", CountedKey(), "57fb8091636f756e746564"},
		{"job key", JobKey(), "57fb80916a6f62"},
		{"job", EncodeJob(someJob), "01020174000000000000000000000000000000"},
		{"job step key", JobStepKey(), "57fb80916a6f6273746570"},
		{"job step", EncodeJobStep(someJob, 258), "01740000000000000000000000000000000000000000000102"},
		{"counts key", CountsKey(), "57fb8091636f756e7473"},
		{"counts", EncodeCounts(someCounts),
			"0100000000000001020000042f612f3103013380100102013000000102622f0301370703ffffffffffffffff7f57428273"},
		{"alarm key", EncodeAlarmKey(1, 2), "57fb8091616c61726d2f000000000000000100000002"},
		{"member key", EncodeMemberKey("n1"), "57fb80906e31"},
		{"user key", EncodeAuthKey(AuthUser, "root"), "57fb808f75726f6f7424"},
		{"role key", EncodeAuthKey(AuthRole, "root"), "57fb808f72726f6f7424"},
		{"user", EncodeAuthValue([]byte("u")), "0175"},
		{"settings of authentication", EncodeAuthSettings(AuthSettings{Enabled: true, Version: 1, Revision: 2, Epoch: 3}),
			"0101000000000000000100000000000000020000000000000003"},
		{"token", EncodeToken(Token{User: "u", Epoch: 1, Password: 2, Until: 3}),
			"0100000000000000010000000000000002000000000000000375"},
	}
}

// Once there was a release, a change of these bytes needs another format byte: docs/releasing.md.
func TestRowsKeepTheirBytes(t *testing.T) {
	for _, row := range formats() {
		require.Equal(t, row.want, hex.EncodeToString(row.bytes), row.name)
	}
}

// TestNewerFormatsAreRefused with an error that says so: nothing is guessed of a row that a newer version wrote.
func TestNewerFormatsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		value  []byte
		decode func([]byte) error
	}{
		"version": {EncodeVersion(&Record{Value: []byte("v")}),
			func(b []byte) error { return last(DecodeVersion([]byte("k"), 2, b)) }},
		"index": {EncodeIndex(Index{ModRevision: 1}), func(b []byte) error { return last(DecodeIndex(b)) }},
		"log": {EncodeLog(someTime, []Change{{Revision: 2, Key: []byte("k")}})[0],
			func(b []byte) error { return last(DecodeLog(b)) }},
		"lease": {EncodeLease(Lease{TTL: 1}),
			func(b []byte) error { return last(DecodeLease(EncodeLeaseKey(7), b)) }},
		"fencing token": {EncodeFenceToken(FenceToken{Sequence: 1}),
			func(b []byte) error { return last(DecodeFenceToken(b)) }},
		"lock":   {EncodeLock(1, []byte("{}")), func(b []byte) error { _, _, err := DecodeLock(b); return err }},
		"lost":   {EncodeDataLoss(DataLoss{}), func(b []byte) error { return last(DecodeDataLoss(b)) }},
		"number": {EncodeInt64(1), func(b []byte) error { return last(DecodeInt64(b)) }},
		"counts": {EncodeCounts(someCounts), func(b []byte) error { return last(DecodeCounts(b)) }},
		"job":    {EncodeJob(someJob), func(b []byte) error { return last(DecodeJob(b)) }},
		"user":   {EncodeAuthValue([]byte("u")), func(b []byte) error { return last(DecodeAuthValue(b)) }},
		"auth":   {EncodeAuthSettings(AuthSettings{}), func(b []byte) error { return last(DecodeAuthSettings(b)) }},
		"token":  {EncodeToken(Token{User: "u", Until: 3}), func(b []byte) error { return last(DecodeToken(b)) }},
	} {
		require.NoError(t, c.decode(c.value), name)
		c.value[0]++
		err := c.decode(c.value)
		require.ErrorIs(t, err, ErrMalformed, name)
		require.ErrorContains(t, err, "a newer one wrote it", name)
	}
}

// A change is a put, a deletion, or creates a key whose tombstone it names. Nothing else is guessed.
func TestKindsOfChanges(t *testing.T) {
	for _, c := range []struct {
		kind, prev byte
		want       Change
	}{
		{0, 1, Change{Revision: 2, Key: []byte("k"), PrevRevision: 1}},
		{1, 1, Change{Revision: 2, Key: []byte("k"), PrevRevision: 1, Tombstone: true}},
		{2, 1, Change{Revision: 2, Key: []byte("k"), PrevTombstone: 1}},
		{2, 0, Change{}},
		{3, 1, Change{}},
	} {
		row := binary.AppendUvarint([]byte{formatV1}, uint64(someTime.UnixMilli()))
		got, err := DecodeLog(append(row, 2, 0, c.kind, c.prev, 1, 'k'))
		if c.want.Key == nil {
			require.ErrorIs(t, err, ErrMalformed, "kind %d, revision %d", c.kind, c.prev)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []Change{c.want}, got)
	}
}

// The record may be kept, and a log row has up to MaxLogRow.
func TestDeletionDoesNotKeepTheLogRow(t *testing.T) {
	row := EncodeLog(someTime, []Change{{Revision: 2, Key: []byte("k"), Tombstone: true}})[0]
	changes, err := DecodeLog(row)
	require.NoError(t, err)
	deletion := changes[0].Deletion()
	clear(row)
	require.Equal(t, "k", string(deletion.Key))
}

// someTime is when a commit was made.
var someTime = time.UnixMilli(1_750_000_000_000)

// someJob is an import that has ended.
var someJob = Job{Kind: JobImport, Ended: true, Token: [16]byte{'t'}}
