package coder

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// AuthKind distinguishes the rows of users and roles. Rows of one kind lie together
// and sort by name.
type AuthKind byte

// The kinds, in the order of their rows. The server defines the rows' values.
const (
	AuthRole AuthKind = 'r'
	AuthUser AuthKind = 'u'
	// AuthRevoked rows are named by the hash of a token that is void.
	AuthRevoked AuthKind = 'x'
)

const (
	authSettings = 's'
	authToken    = 't'
)

// EncodeAuthKey returns the internal key of the row of a user or a role.
func EncodeAuthKey(kind AuthKind, name string) []byte {
	b := make([]byte, 0, magicLen+1+escapedLen([]byte(name))+1)
	b = append(append(b, magicAuth...), byte(kind))
	return append(appendEscaped(b, []byte(name)), split)
}

// DecodeAuthKey is the inverse of EncodeAuthKey.
func DecodeAuthKey(internal []byte) (kind AuthKind, name string, err error) {
	end := len(internal) - 1
	if end < magicLen+1 || string(internal[:magicLen]) != magicAuth || internal[end] != split {
		return 0, "", fmt.Errorf("%w: auth key %x", ErrMalformed, internal)
	}
	kind = AuthKind(internal[magicLen])
	if kind != AuthRole && kind != AuthUser && kind != AuthRevoked {
		return 0, "", fmt.Errorf("%w: auth key %x", ErrMalformed, internal)
	}
	raw, err := unescape(internal[magicLen+1 : end])
	return kind, string(raw), err
}

// CheckAuthName returns ErrKeyTooLong, wrapped with the lengths, when the row of a
// user or a role with this name does not fit.
func CheckAuthName(name string) error {
	if n := magicLen + 1 + escapedLen([]byte(name)) + 1; n > MaxInternalKey {
		return fmt.Errorf("%w: %d bytes encoded, at most %d fit", ErrKeyTooLong, n, MaxInternalKey)
	}
	return nil
}

// AuthBounds returns the range of all rows of a kind.
func AuthBounds(kind AuthKind) (lo, hi []byte) { return authBounds(byte(kind)) }

func authBounds(kind byte) (lo, hi []byte) {
	return append([]byte(magicAuth), kind), append([]byte(magicAuth), kind+1)
}

// EncodeAuthValue returns the value of a row of a user or a role: format(1) content.
func EncodeAuthValue(content []byte) []byte { return append([]byte{formatV1}, content...) }

// DecodeAuthValue is the inverse of EncodeAuthValue. The content aliases b.
func DecodeAuthValue(b []byte) ([]byte, error) {
	if len(b) == 0 || b[0] != formatV1 {
		return nil, malformed(b, "auth value of %d bytes", len(b))
	}
	return b[1:], nil
}

// AuthSettings is the content of the one row that every change of users, roles and
// of authentication itself changes too.
type AuthSettings struct {
	// Version rises by one with every commit that changes rows of users, roles or
	// this one: rows that were read between two reads of the same version belong
	// together.
	Version  int64
	Enabled  bool
	Revision int64 // etcd's auth revision; 0 stands for the first one, 1
	// Epoch rises by one when authentication is switched off. Tokens of an earlier
	// one are void.
	Epoch int64
}

const authSettingsLen = 1 + 1 + 3*8

// AuthSettingsKey is the internal key of that row.
func AuthSettingsKey() []byte { return append([]byte(magicAuth), authSettings) }

// EncodeAuthSettings returns its value: format(1) enabled(1) version(8) revision(8)
// epoch(8).
func EncodeAuthSettings(s AuthSettings) []byte {
	b := make([]byte, 0, authSettingsLen)
	var enabled byte
	if s.Enabled {
		enabled = 1
	}
	return appendInt64s(append(b, formatV1, enabled), s.Version, s.Revision, s.Epoch)
}

// DecodeAuthSettings is the inverse of EncodeAuthSettings.
func DecodeAuthSettings(b []byte) (AuthSettings, error) {
	if len(b) != authSettingsLen || b[0] != formatV1 || b[1] > 1 {
		return AuthSettings{}, malformed(b, "auth settings %x", b)
	}
	return AuthSettings{Enabled: b[1] == 1, Version: int64At(b, 2), Revision: int64At(b, 10), Epoch: int64At(b, 18)}, nil
}

// TokenHash is the hash of a token. The table holds only hashes, so that reading it is not enough to use a token.
type TokenHash [sha256.Size]byte

// HashToken returns the hash of a token.
func HashToken(token string) TokenHash { return sha256.Sum256([]byte(token)) }

// Token is the content of the row of a token that a server has given out.
type Token struct {
	User string
	// Epoch is that of AuthSettings when the token was given out.
	Epoch int64
	// Password shows whether the user still has the password that the token was given for.
	Password uint64
	// Until is the Unix time in seconds at which the token expires even if it is used; 0: never.
	Until int64
}

// EncodeTokenKey returns the internal key of a token's row.
func EncodeTokenKey(h TokenHash) []byte {
	return append(append([]byte(magicAuth), authToken), h[:]...)
}

// DecodeTokenKey is the inverse of EncodeTokenKey.
func DecodeTokenKey(internal []byte) (h TokenHash, err error) {
	const begin = magicLen + 1
	if len(internal) != begin+len(h) || string(internal[:magicLen]) != magicAuth || internal[magicLen] != authToken {
		return h, fmt.Errorf("%w: token key %x", ErrMalformed, internal)
	}
	return TokenHash(internal[begin:]), nil
}

// TokenBounds returns the range of all token rows.
func TokenBounds() (lo, hi []byte) { return authBounds(authToken) }

// EncodeToken returns the value of a token's row: format(1) epoch(8) password(8) until(8) user.
func EncodeToken(t Token) []byte {
	b := appendInt64s([]byte{formatV1}, t.Epoch)
	b = binary.BigEndian.AppendUint64(b, t.Password)
	b = appendInt64s(b, t.Until)
	return append(b, t.User...)
}

// DecodeToken is the inverse of EncodeToken.
func DecodeToken(b []byte) (Token, error) {
	const password, until, user = 9, 17, 25 // where they begin
	if len(b) < user || b[0] != formatV1 {
		return Token{}, malformed(b, "token of %d bytes", len(b))
	}
	return Token{Epoch: int64At(b, 1), Password: binary.BigEndian.Uint64(b[password:]), Until: int64At(b, until),
		User: string(b[user:])}, nil
}
