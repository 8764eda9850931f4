package coder

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAuthRowsKeepTheOrderOfNamesAndRoundTrip(t *testing.T) {
	kinds := []AuthKind{AuthUser, AuthRole, AuthRevoked}
	for _, a := range hostile {
		for _, b := range hostile {
			require.Equal(t, bytes.Compare(a, b), bytes.Compare(EncodeAuthKey(AuthUser, string(a)),
				EncodeAuthKey(AuthUser, string(b))), "%q and %q", a, b)
		}
		for _, kind := range kinds {
			internal := EncodeAuthKey(kind, string(a))
			gotKind, name, err := DecodeAuthKey(internal)
			require.NoError(t, err)
			require.Equal(t, kind, gotKind)
			require.Equal(t, string(a), name)
			for _, other := range kinds {
				lo, hi := AuthBounds(other)
				require.Equal(t, kind == other, inside(lo, hi, internal), "%c %q and the bounds of %c", kind, a, other)
			}
			lo, hi := TokenBounds()
			require.False(t, inside(lo, hi, internal), "%c %q lies among the tokens", kind, a)
		}
	}
	for _, kind := range kinds {
		lo, hi := AuthBounds(kind)
		require.False(t, inside(lo, hi, AuthSettingsKey()), "the settings lie among the rows of kind %c", kind)
	}
}

func TestTokensAreNotInTheTable(t *testing.T) {
	h := HashToken("secret.7")
	internal := EncodeTokenKey(h)
	got, err := DecodeTokenKey(internal)
	require.NoError(t, err)
	require.Equal(t, h, got)
	lo, hi := TokenBounds()
	require.True(t, inside(lo, hi, internal))
	require.NotContains(t, string(internal), "secret")
}

func TestMalformedAuthRowsAreRefused(t *testing.T) {
	long := strings.Repeat("n", MaxInternalKey)
	require.ErrorIs(t, CheckAuthName(long), ErrKeyTooLong, "a name of %d bytes", len(long))
	fits := strings.Repeat("n", MaxInternalKey-magicLen-2)
	require.NoError(t, CheckAuthName(fits))
	require.Len(t, EncodeAuthKey(AuthRole, fits), MaxInternalKey)
	for name, err := range map[string]error{
		"another kind":   second(DecodeAuthKey(append([]byte(magicAuth), 'z', split))),
		"the settings":   second(DecodeAuthKey(AuthSettingsKey())),
		"another magic":  second(DecodeAuthKey(EncodeIndexKey([]byte("k")))),
		"no value":       last(DecodeAuthValue(nil)),
		"another format": last(DecodeAuthValue([]byte{9})),
		"short settings": last(DecodeAuthSettings(EncodeAuthSettings(AuthSettings{})[1:])),
		"a short token":  last(DecodeToken([]byte{formatV1})),
		"a token's key":  last(DecodeTokenKey(AuthSettingsKey())),
	} {
		require.ErrorIs(t, err, ErrMalformed, "%s", name)
	}
}

func second[A, B any](_ A, _ B, err error) error { return err }
func last[A any](_ A, err error) error           { return err }
