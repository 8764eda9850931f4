package coder

import (
	"bytes"
	"errors"
	"math"
	"testing"
)

// hostile holds the bytes that the coding treats specially, and their neighbours.
var hostile = [][]byte{
	{}, {0}, {0, 0}, {0x23}, {0x24}, {0x25}, {0x26}, {0xff}, {0xff, 0xff}, []byte("$"), []byte("%"), []byte("%%"), []byte("%$"),
	[]byte("a"), []byte("a\x00"), []byte("a$"), []byte("a%"), []byte("a&"), []byte("a/b"), []byte("foo"),
	[]byte("foo\x00"),
	[]byte("foo\x00\x00"), []byte("foo$\x00\x00\x00\x00\x00\x00\x00\x01"), []byte("/registry/pods/default/a"),
	[]byte("/registry/pods/default/a\x00"), []byte("W\xfb\x80\x8b"), bytes.Repeat([]byte{0}, 16),
	bytes.Repeat([]byte{0xff}, 16),
}

func TestKubernetesKeysAreStoredAsKubeBrainPublishedThem(t *testing.T) {
	got := EncodeVersionKey([]byte("/registry/pods/kube-system/coredns-5d78c9869d-abcde"), 0x0102030405060708)
	want := "\x57\xfb\x80\x8b/registry/pods/kube-system/coredns-5d78c9869d-abcde$\x01\x02\x03\x04\x05\x06\x07\x08"
	if string(got) != want {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
}

func checkPair(t *testing.T, a, b []byte, ra, rb int64) {
	t.Helper()
	for _, raw := range [][]byte{a, b} {
		got, err := DecodeIndexKey(EncodeIndexKey(raw))
		if err != nil || !bytes.Equal(got, raw) {
			t.Fatalf("index key of %q came back as %q, %v", raw, got, err)
		}
		got, rev, err := DecodeVersionKey(EncodeVersionKey(raw, ra))
		if err != nil || !bytes.Equal(got, raw) || rev != ra {
			t.Fatalf("version key of %q@%d came back as %q@%d, %v", raw, ra, got, rev, err)
		}
	}
	want := bytes.Compare(a, b)
	if got := bytes.Compare(EncodeIndexKey(a), EncodeIndexKey(b)); got != want {
		t.Fatalf("compare(%q, %q) is %d, their index keys give %d", a, b, want, got)
	}
	if want == 0 && ra != rb {
		want = -1
		if ra > rb {
			want = 1
		}
	}
	if got := bytes.Compare(EncodeVersionKey(a, ra), EncodeVersionKey(b, rb)); got != want {
		t.Fatalf("compare(%q@%d, %q@%d) is %d, their version keys give %d", a, ra, b, rb, want, got)
	}
	if got := bytes.Compare(EncodeAttachmentKey(ra, a), EncodeAttachmentKey(ra, b)); got != bytes.Compare(a, b) {
		t.Fatalf("attachment keys of %q and %q compare %d", a, b, got)
	}
}

// checkBounds holds the row ranges of [key, end) against the definition.
func checkBounds(t *testing.T, key, end, raw []byte, rev int64) {
	t.Helper()
	in := Contains(key, end, raw)
	lo, hi := IndexBounds(key, end)
	if got := inside(lo, hi, EncodeIndexKey(raw)); got != in {
		t.Fatalf("%q in [%q, %q) is %v, index bounds say %v", raw, key, end, in, got)
	}
	lo, hi = VersionBounds(key, end)
	if got := inside(lo, hi, EncodeVersionKey(raw, rev)); got != in {
		t.Fatalf("%q in [%q, %q) is %v, version bounds say %v", raw, key, end, in, got)
	}
	lo, _ = IndexBounds(key, []byte{0})
	if next, _ := IndexBounds(KeyAfter(key), []byte{0}); inside(lo, next, EncodeIndexKey(raw)) != bytes.Equal(key, raw) {
		t.Fatalf("the bound after %q is not right after it: %q", key, raw)
	}
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

func FuzzDecodedRowsEncodeToTheSameBytes(f *testing.F) {
	f.Add(EncodeIndexKey([]byte("a\x00%")))
	f.Add(EncodeVersionKey([]byte("a"), 9))
	f.Add(EncodeLog([]Change{{Revision: 3, Key: []byte("k"), PrevRevision: 2}})[0])
	f.Fuzz(func(t *testing.T, b []byte) {
		if raw, rev, err := DecodeVersionKey(b); err == nil && !bytes.Equal(EncodeVersionKey(raw, rev), b) {
			t.Fatalf("%x decodes to %q@%d, which encodes differently", b, raw, rev)
		}
		if raw, err := DecodeIndexKey(b); err == nil && !bytes.Equal(EncodeIndexKey(raw), b) {
			t.Fatalf("%x decodes to %q, which encodes differently", b, raw)
		}
		if id, raw, err := DecodeAttachmentKey(b); err == nil && !bytes.Equal(EncodeAttachmentKey(id, raw), b) {
			t.Fatalf("%x decodes to %d %q, which encodes differently", b, id, raw)
		}
		if _, err := DecodeLog(b); err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatal(err)
		}
		if x, err := DecodeIndex(b); err == nil && b[indexFlagsOffset] <= flagTombstone|flagGap &&
			!bytes.Equal(EncodeIndex(x), b) {
			t.Fatalf("%x decodes to %+v, which encodes differently", b, x)
		}
	})
}

func FuzzLog(f *testing.F) {
	f.Add(int64(1), int32(0), []byte("a"), int64(0), false, 3)
	f.Add(int64(math.MaxInt64), int32(math.MaxInt32), bytes.Repeat([]byte{0xff}, 3000), int64(math.MaxInt64-1), true, 900)
	f.Fuzz(func(t *testing.T, rev int64, sub int32, key []byte, prev int64, del bool, n int) {
		if rev < 0 || sub < 0 || prev < 0 || n < 0 || n > 2000 || len(key) > MaxInternalKey {
			t.Skip()
		}
		var changes []Change
		for range n {
			changes = append(changes, Change{Revision: rev, Sub: sub, Key: key, PrevRevision: prev, Tombstone: del})
		}
		i := 0
		for _, row := range EncodeLog(changes) {
			if len(row) > MaxLogRow {
				t.Fatalf("log row of %d bytes", len(row))
			}
			got, err := DecodeLog(row)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range got {
				w := changes[i]
				if c.Revision != w.Revision || c.Sub != w.Sub || !bytes.Equal(c.Key, w.Key) || c.PrevRevision != w.PrevRevision ||
					c.Tombstone != w.Tombstone {
					t.Fatalf("change %d came back as %+v", i, c)
				}
				i++
			}
		}
		if i != n {
			t.Fatalf("%d of %d changes came back", i, n)
		}
	})
}

func TestValuesRoundTrip(t *testing.T) {
	for _, x := range []Index{
		{}, {ModRevision: 5, PrevRevision: 3, CreateRevision: 2, Version: 4, Lease: -7, Gap: true},
		{ModRevision: math.MaxInt64, PrevRevision: math.MaxInt64 - 1, Tombstone: true},
	} {
		b := EncodeIndex(x)
		got, err := DecodeIndex(b)
		if err != nil || got != x {
			t.Fatalf("%+v came back as %+v, %v", x, got, err)
		}
		if own, prev, ok := RowVersions(b); !ok || own != x.ModRevision || prev != x.PrevRevision {
			t.Fatalf("row versions of %+v are %d, %d, %v", x, own, prev, ok)
		}
	}
	r := &Record{Key: []byte("k"), Value: []byte("v\x00"), CreateRevision: 1, ModRevision: 9, Version: 3, Lease: 1 << 60,
		Sub: 12}
	got, err := DecodeVersion(r.Key, 9, EncodeVersion(r))
	if err != nil || !bytes.Equal(got.Value, r.Value) || got.CreateRevision != 1 || got.Version != 3 ||
		got.Lease != r.Lease || got.Sub != 12 || got.Tombstone {
		t.Fatalf("%+v came back as %+v, %v", r, got, err)
	}
	c := FenceToken{Sequence: 8, Term: 3, Revision: 77, Attempt: 1}
	gotC, err := DecodeFenceToken(EncodeFenceToken(c))
	if err != nil || gotC != c {
		t.Fatalf("%+v came back as %+v, %v", c, gotC, err)
	}
	if own, prev, ok := RowVersions(EncodeFenceToken(c)); !ok || own != 8 || prev != 7 {
		t.Fatalf("row versions of the token are %d, %d", own, prev)
	}
	for _, record := range []string{"", `{"holderIdentity":"a"}`} {
		b := EncodeLock(4, []byte(record))
		seq, got, err := DecodeLock(b)
		if err != nil || seq != 4 || string(got) != record {
			t.Fatalf("lock record %q came back as %q with sequence %d, %v", record, got, seq, err)
		}
		if own, prev, ok := RowVersions(b); !ok || own != 4 || prev != 3 {
			t.Fatalf("row versions of the lock are %d, %d", own, prev)
		}
	}
	for _, l := range []Lease{
		{ID: -5, TTL: 60, Remaining: 12, Policy: true}, {ID: 7, TTL: 60, Revoking: true}, {ID: 7, TTL: 60, Policy: true, Revoking: true},
	} {
		got, err := DecodeLease(EncodeLeaseKey(l.ID), EncodeLease(l))
		if err != nil || got != l {
			t.Fatalf("%+v came back as %+v, %v", l, got, err)
		}
	}
}

func TestOnlyRowsChangedInPlaceHaveARowVersion(t *testing.T) {
	versioned := [][]byte{EncodeIndexKey([]byte("a")), EncodeIndexKey(nil), FenceKey(), LockKey()}
	plain := [][]byte{
		EncodeVersionKey([]byte("a"), 1), EncodeLogKey(1<<32, 1), EncodeLeaseKey(math.MinInt64), EncodeLeaseKey(1),
		EncodeAttachmentKey(math.MinInt64, nil), EncodeAttachmentKey(1, bytes.Repeat([]byte{0}, 9)), CompactKey(),
		EncodeAlarmKey(1, 0),
	}
	for _, k := range versioned {
		if !HasRowVersion(k) {
			t.Errorf("%x is not versioned", k)
		}
	}
	for _, k := range plain {
		if HasRowVersion(k) {
			t.Errorf("%x is versioned", k)
		}
	}
}

func TestMalformedLockRowsAreRefused(t *testing.T) {
	good := EncodeLock(2, []byte("{}"))
	format, gap := bytes.Clone(good), bytes.Clone(good)
	format[0]++
	gap[prevRowVersionOffset+7]--
	for _, b := range [][]byte{nil, good[:rowVersionLen-1], format, gap, EncodeLock(0, nil)} {
		if _, _, err := DecodeLock(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%x: %v, want ErrMalformed", b, err)
		}
	}
}

func TestLogAndLeaseBounds(t *testing.T) {
	lo, hi := LogBounds(5, 9)
	for rev, want := range map[int64]bool{4: false, 5: true, 9: true, 10: false} {
		if inside(lo, hi, EncodeLogKey(rev, 3)) != want {
			t.Errorf("log row of %d in [5, 9]: want %v", rev, want)
		}
	}
	lo, hi = LogBounds(5, math.MaxInt64)
	if !inside(lo, hi, EncodeLogKey(math.MaxInt64, math.MaxUint16)) || inside(lo, hi, EncodeLeaseKey(math.MinInt64)) {
		t.Error("open log bounds are wrong")
	}
	for _, id := range []int64{math.MinInt64, -1, 1, math.MaxInt64} {
		lo, hi = AttachmentBounds(id)
		if !inside(lo, hi, EncodeAttachmentKey(id, []byte{0xff})) || !inside(lo, hi, EncodeAttachmentKey(id, nil)) {
			t.Errorf("attachment bounds of %d miss its own", id)
		}
		if id != math.MaxInt64 && inside(lo, hi, EncodeAttachmentKey(id+1, nil)) || id != math.MinInt64 &&
			inside(lo, hi, EncodeAttachmentKey(id-1, []byte{0xff})) {
			t.Errorf("attachment bounds of %d hold a neighbour's", id)
		}
	}
}

func TestKeysThatDoNotFitAreRefused(t *testing.T) {
	if err := CheckKey(bytes.Repeat([]byte{'a'}, 3059)); err != nil {
		t.Fatal(err)
	}
	if err := CheckKey(bytes.Repeat([]byte{'a'}, 3060)); !errors.Is(err, ErrKeyTooLong) {
		t.Fatalf("3060 bytes: %v", err)
	}
	if err := CheckKey(bytes.Repeat([]byte{0}, 1530)); !errors.Is(err, ErrKeyTooLong) {
		t.Fatalf("1530 zero bytes: %v", err)
	}
	if n := len(EncodeAttachmentKey(1, bytes.Repeat([]byte{'a'}, 3059))); n > MaxInternalKey {
		t.Fatalf("attachment key of %d bytes", n)
	}
}
