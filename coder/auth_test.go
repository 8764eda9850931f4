package coder

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestAuthRowsKeepTheOrderOfNamesAndRoundTrip(t *testing.T) {
	for _, a := range hostile {
		for _, b := range hostile {
			ka, kb := EncodeAuthKey(AuthUser, string(a)), EncodeAuthKey(AuthUser, string(b))
			if got, want := bytes.Compare(ka, kb), bytes.Compare(a, b); got != want {
				t.Fatalf("compare(%q, %q) is %d, their rows give %d", a, b, want, got)
			}
		}
		for _, kind := range []AuthKind{AuthUser, AuthRole, AuthRevoked} {
			internal := EncodeAuthKey(kind, string(a))
			gotKind, name, err := DecodeAuthKey(internal)
			if err != nil || gotKind != kind || name != string(a) {
				t.Fatalf("%c %q came back as %c %q, %v", kind, a, gotKind, name, err)
			}
			for _, other := range []AuthKind{AuthUser, AuthRole, AuthRevoked} {
				lo, hi := AuthBounds(other)
				if inside(lo, hi, internal) != (kind == other) {
					t.Fatalf("%c %q and the bounds of %c", kind, a, other)
				}
			}
			lo, hi := TokenBounds()
			if inside(lo, hi, internal) {
				t.Fatalf("%c %q lies among the tokens", kind, a)
			}
		}
		content, err := DecodeAuthValue(EncodeAuthValue(a))
		if err != nil || !bytes.Equal(content, a) {
			t.Fatalf("%q came back as %q, %v", a, content, err)
		}
	}
	for _, kind := range []AuthKind{AuthUser, AuthRole, AuthRevoked} {
		if lo, hi := AuthBounds(kind); inside(lo, hi, AuthSettingsKey()) {
			t.Fatalf("the settings lie among the rows of kind %c", kind)
		}
	}
}

func TestSettingsAndTokensRoundTrip(t *testing.T) {
	for _, s := range []AuthSettings{{}, {Version: 1, Enabled: true, Revision: -2, Epoch: 1 << 62}} {
		if got, err := DecodeAuthSettings(EncodeAuthSettings(s)); err != nil || got != s {
			t.Fatalf("%+v came back as %+v, %v", s, got, err)
		}
	}
	for _, tk := range []Token{{}, {User: "root", Epoch: 3, Password: 1 << 63},
		{User: "root", Password: 7, Until: 1 << 40}, {Until: 1}} {
		if got, err := DecodeToken(EncodeToken(tk)); err != nil || got != tk {
			t.Fatalf("%+v came back as %+v, %v", tk, got, err)
		}
	}
	h := HashToken("secret.7")
	internal := EncodeTokenKey(h)
	if got, err := DecodeTokenKey(internal); err != nil || got != h {
		t.Fatalf("%x came back as %x, %v", h, got, err)
	}
	if lo, hi := TokenBounds(); !inside(lo, hi, internal) {
		t.Fatal("a token lies outside the tokens")
	}
	if bytes.Contains(internal, []byte("secret")) {
		t.Fatal("the token itself is in its row")
	}
}

func TestMalformedAuthRowsAreRefused(t *testing.T) {
	long := strings.Repeat("n", MaxInternalKey)
	if err := CheckAuthName(long); !errors.Is(err, ErrKeyTooLong) {
		t.Fatalf("a name of %d bytes: %v", len(long), err)
	}
	fits := strings.Repeat("n", MaxInternalKey-magicLen-2)
	if err := CheckAuthName(fits); err != nil || len(EncodeAuthKey(AuthRole, fits)) != MaxInternalKey {
		t.Fatalf("the longest name: %v", err)
	}
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
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[A, B any](_ A, _ B, err error) error { return err }
func last[A any](_ A, err error) error           { return err }
