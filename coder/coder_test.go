package coder

import (
	"bytes"
	"cmp"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hostile holds the bytes that the coding treats specially, and their neighbours.
var hostile = [][]byte{
	{}, {0}, {0, 0}, {0x23}, {0x24}, {0x25}, {0x26}, {0xff}, {0xff, 0xff}, []byte("$"), []byte("%"), []byte("%%"),
	[]byte("%$"),
	[]byte("a"), []byte("a\x00"), []byte("a$"), []byte("a%"), []byte("a&"), []byte("a/b"), []byte("foo"),
	[]byte("foo\x00"),
	[]byte("foo\x00\x00"), []byte("foo$\x00\x00\x00\x00\x00\x00\x00\x01"), []byte("/registry/pods/default/a"),
	[]byte("/registry/pods/default/a\x00"), []byte("W\xfb\x80\x8b"), bytes.Repeat([]byte{0}, 16),
	bytes.Repeat([]byte{0xff}, 16),
}

func TestKubernetesKeysAreStoredAsKubeBrainPublishedThem(t *testing.T) {
	got := EncodeVersionKey([]byte("/registry/pods/kube-system/coredns-5d78c9869d-abcde"), 0x0102030405060708)
	want := "\x57\xfb\x80\x8b/registry/pods/kube-system/coredns-5d78c9869d-abcde$\x01\x02\x03\x04\x05\x06\x07\x08"
	require.Equal(t, want, string(got))
}

func checkPair(t *testing.T, a, b []byte, ra, rb int64) {
	t.Helper()
	for _, raw := range [][]byte{a, b} {
		got, err := DecodeIndexKey(EncodeIndexKey(raw))
		require.NoError(t, err)
		require.Equal(t, string(raw), string(got))
		got, rev, err := DecodeVersionKey(EncodeVersionKey(raw, ra))
		require.NoError(t, err)
		require.Equal(t, string(raw), string(got))
		require.Equal(t, ra, rev)
	}
	want := bytes.Compare(a, b)
	require.Equal(t, want, bytes.Compare(EncodeIndexKey(a), EncodeIndexKey(b)), "index keys of %q, %q", a, b)
	require.Equal(t, want, bytes.Compare(EncodeAttachmentKey(ra, a), EncodeAttachmentKey(ra, b)),
		"attachment keys of %q, %q", a, b)
	require.Equal(t, cmp.Or(want, cmp.Compare(ra, rb)), bytes.Compare(EncodeVersionKey(a, ra), EncodeVersionKey(b, rb)),
		"version keys of %q@%d, %q@%d", a, ra, b, rb)
}

// checkBounds holds the row ranges of [key, end) against the definition.
func checkBounds(t *testing.T, key, end, raw []byte, rev int64) {
	t.Helper()
	in := Contains(key, end, raw)
	lo, hi := IndexBounds(key, end)
	require.Equal(t, in, inside(lo, hi, EncodeIndexKey(raw)), "index bounds of [%q, %q), and %q", key, end, raw)
	lo, hi = VersionBounds(key, end)
	require.Equal(t, in, inside(lo, hi, EncodeVersionKey(raw, rev)), "version bounds of [%q, %q), and %q", key, end, raw)
	lo, _ = IndexBounds(key, []byte{0})
	next, _ := IndexBounds(KeyAfter(key), []byte{0})
	require.Equal(t, bytes.Equal(key, raw), inside(lo, next, EncodeIndexKey(raw)), "%q, and right after %q", raw, key)
}

func inside(lo, hi, k []byte) bool { return bytes.Compare(lo, k) <= 0 && bytes.Compare(k, hi) < 0 }

func TestHostileKeysKeepTheirOrderAndRoundTrip(t *testing.T) {
	for _, a := range hostile {
		for _, b := range hostile {
			checkPair(t, a, b, 1, math.MaxInt64)
			checkPair(t, a, b, 0x24, 0x25)
			for _, c := range hostile {
				checkBounds(t, a, b, c, 7)
			}
		}
	}
}

func FuzzKeys(f *testing.F) {
	for i, a := range hostile {
		f.Add(a, hostile[(i*7+3)%len(hostile)], hostile[(i*5+1)%len(hostile)], int64(1), int64(i+1))
	}
	f.Fuzz(func(t *testing.T, a, b, c []byte, ra, rb int64) {
		ra, rb = ra&math.MaxInt64, rb&math.MaxInt64
		checkPair(t, a, b, ra, rb)
		checkBounds(t, a, b, c, ra)
	})
}

func FuzzLog(f *testing.F) {
	f.Add(int64(1), int32(0), []byte("a"), int64(0), false, 3, int64(1_750_000_000_000))
	f.Add(int64(math.MaxInt64), int32(math.MaxInt32), bytes.Repeat([]byte{0xff}, 3000), int64(math.MaxInt64-1), true, 900,
		int64(-1))
	f.Fuzz(func(t *testing.T, rev int64, sub int32, key []byte, prev int64, del bool, n int, ms int64) {
		at := time.UnixMilli(ms)
		if rev < 0 || sub < 0 || prev < 0 || n < 0 || n > 2000 || len(key) > MaxInternalKey {
			t.Skip()
		}
		var changes []Change
		for i := range n {
			c := Change{Revision: rev, Sub: sub, Key: key, PrevRevision: prev, Tombstone: del}
			if !del && i%2 > 0 {
				c.PrevRevision, c.PrevTombstone = 0, prev
			}
			changes = append(changes, c)
		}
		var got []Change
		for _, row := range EncodeLog(at, changes) {
			require.LessOrEqual(t, len(row), MaxLogRow)
			gotTime, err := DecodeLogTime(row)
			require.NoError(t, err)
			require.Equal(t, max(ms, 0), gotTime.UnixMilli(), "a clock before 1970 counts as 1970")
			part, err := DecodeLog(row)
			require.NoError(t, err)
			got = append(got, part...)
		}
		require.Len(t, got, n)
		for i, c := range got {
			require.Equal(t, string(changes[i].Key), string(c.Key))
			c.Key = changes[i].Key // an empty one may be nil
			require.Equal(t, changes[i], c)
		}
	})
}

func TestOnlyRowsChangedInPlaceHaveARowVersion(t *testing.T) {
	versioned := [][]byte{EncodeIndexKey([]byte("a")), EncodeIndexKey(nil), FenceKey(), LockKey()}
	plain := [][]byte{
		EncodeVersionKey([]byte("a"), 1), EncodeLogKey(1<<32, 1), EncodeLeaseKey(math.MinInt64), EncodeLeaseKey(1),
		EncodeAttachmentKey(math.MinInt64, nil), EncodeAttachmentKey(1, bytes.Repeat([]byte{0}, 9)), CompactKey(),
		EncodeAlarmKey(1, 0),
	}
	for _, k := range versioned {
		require.True(t, HasRowVersion(k), "%x", k)
	}
	for _, k := range plain {
		require.False(t, HasRowVersion(k), "%x", k)
	}
}

func TestMalformedLockRowsAreRefused(t *testing.T) {
	good := EncodeLock(2, []byte("{}"))
	format, gap := bytes.Clone(good), bytes.Clone(good)
	format[0]++
	gap[prevRowVersionOffset+7]--
	for _, b := range [][]byte{nil, good[:rowVersionLen-1], format, gap, EncodeLock(0, nil)} {
		_, _, err := DecodeLock(b)
		require.ErrorIs(t, err, ErrMalformed, "%x", b)
	}
}

func TestLogAndLeaseBounds(t *testing.T) {
	lo, hi := LogBounds(5, 9)
	for rev, want := range map[int64]bool{4: false, 5: true, 9: true, 10: false} {
		require.Equal(t, want, inside(lo, hi, EncodeLogKey(rev, 3)), rev)
	}
	lo, hi = LogBounds(5, math.MaxInt64)
	require.True(t, inside(lo, hi, EncodeLogKey(math.MaxInt64, math.MaxUint16)))
	require.False(t, inside(lo, hi, EncodeLeaseKey(math.MinInt64)))
	ids := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, 2, math.MaxInt64 - 1, math.MaxInt64}
	for _, id := range ids {
		lo, hi = AttachmentBounds(id)
		for _, other := range ids {
			for _, key := range [][]byte{nil, {0xff}} {
				require.Equal(t, id == other, inside(lo, hi, EncodeAttachmentKey(other, key)), "%d and %d", id, other)
			}
		}
	}
}

func TestKeysThatDoNotFitAreRefused(t *testing.T) {
	require.NoError(t, CheckKey(bytes.Repeat([]byte{'a'}, 3059)))
	require.ErrorIs(t, CheckKey(bytes.Repeat([]byte{'a'}, 3060)), ErrKeyTooLong, "3060 bytes")
	require.ErrorIs(t, CheckKey(bytes.Repeat([]byte{0}, 1530)), ErrKeyTooLong, "1530 zero bytes")
	require.LessOrEqual(t, len(EncodeAttachmentKey(1, bytes.Repeat([]byte{'a'}, 3059))), MaxInternalKey)
}
