package sqldb

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
)

func TestRowLayout(t *testing.T) {
	t.Parallel()
	at := func(value []byte, place string) []byte {
		var from, n int
		_, err := fmt.Sscanf(place, "%d,%d", &from, &n)
		require.NoError(t, err)
		return value[from-1 : from-1+n]
	}
	const own, prev = 0x0102030405060708, 0x1112131415161718
	live := coder.EncodeIndex(coder.Index{ModRevision: own, PrevRevision: prev, Gap: true})
	dead := coder.EncodeIndex(coder.Index{ModRevision: own, PrevRevision: prev, Gap: true, Tombstone: true})
	require.Equal(t, "\x01\x02\x03\x04\x05\x06\x07\x08", string(at(live, RowVersionAt)))
	require.Equal(t, "\x11\x12\x13\x14\x15\x16\x17\x18", string(at(live, PrevRowVersionAt)))
	require.Equal(t, at(live, FlagsAt)[0]|1, at(dead, FlagsAt)[0], "the tombstone flag")
	at(live, FlagsAt)[0] |= 1
	require.Equal(t, dead, live, "nothing else says that it is a tombstone")
	token := coder.EncodeFenceToken(coder.FenceToken{Sequence: 3, Term: own, Revision: 5})
	require.Equal(t, "\x01\x02\x03\x04\x05\x06\x07\x08", string(at(token, TermAt)))
	require.Equal(t, fmt.Sprintf("x'%x'", coder.FenceKey()), FenceKey)
	raw := []byte("k\x00y")
	index, version := coder.EncodeIndexKey(raw), coder.EncodeVersionKey(raw, own)
	require.Equal(t, fmt.Sprintf("x'%x'", version[:4]), VersionMagic)
	require.Equal(t, string(index[4:len(index)-8])+string(at(live, RowVersionAt)), string(version[4:]))
}
