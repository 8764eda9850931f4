package sqldb

import (
	"fmt"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
)

func TestRowLayout(t *testing.T) {
	t.Parallel()
	at := func(value []byte, place string) []byte {
		var from, n int
		if _, err := fmt.Sscanf(place, "%d,%d", &from, &n); err != nil {
			t.Fatal(err)
		}
		return value[from-1 : from-1+n]
	}
	const own, prev = 0x0102030405060708, 0x1112131415161718
	live := coder.EncodeIndex(coder.Index{ModRevision: own, PrevRevision: prev, Gap: true})
	dead := coder.EncodeIndex(coder.Index{ModRevision: own, PrevRevision: prev, Gap: true, Tombstone: true})
	if string(at(live, RowVersionAt)) != "\x01\x02\x03\x04\x05\x06\x07\x08" ||
		string(at(live, PrevRowVersionAt)) != "\x11\x12\x13\x14\x15\x16\x17\x18" {
		t.Errorf("row versions are not where SQL looks for them: %x", live)
	}
	for i := range live {
		if live[i] != dead[i] && (string(at(dead, FlagsAt)) != string(dead[i:i+1]) || live[i]&1 != 0 ||
			dead[i] != live[i]|1) {
			t.Errorf("the tombstone flag is not where SQL looks for it: %x", dead)
		}
	}
	if token := coder.EncodeFenceToken(coder.FenceToken{Sequence: 3, Term: own, Revision: 5}); string(
		at(token, TermAt)) != "\x01\x02\x03\x04\x05\x06\x07\x08" {
		t.Errorf("the term is not where SQL looks for it: %x", token)
	}
	if key := fmt.Sprintf("x'%x'", coder.FenceKey()); key != FenceKey {
		t.Errorf("the fence row's key is %s, SQL looks for %s", key, FenceKey)
	}
	raw := []byte("k\x00y")
	index, version := coder.EncodeIndexKey(raw), coder.EncodeVersionKey(raw, own)
	computed := fmt.Sprintf("x'%x'", version[:4])
	if computed != VersionMagic || string(version[4:]) != string(index[4:len(index)-8])+string(at(live, RowVersionAt)) {
		t.Errorf("version key %x is not made of index key %x as SQL does it", version, index)
	}
}
