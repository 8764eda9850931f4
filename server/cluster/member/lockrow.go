package member

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/sqlbrain/sqlbrain/coder"
)

// lock is what the lock row says, as it was read or written. It is written when the
// leadership changes, and when its holder is challenged and answers.
type lock struct {
	holder uint64 // member id; 0: the lock was released
	// incarnation and grant name the process that leads, and its leadership.
	incarnation uint64
	grant       int64
	challenge   uint64 // asks the holder to prove that it runs; 0: none
	sequence    int64  // the row's mark
	raw         []byte // the whole value, for compare and swap; nil: the row is missing
}

// lockRecord is the row's JSON.
type lockRecord struct {
	Holder      hex `json:"holderIdentity,omitempty"`
	Incarnation hex `json:"incarnation,omitempty"`
	// Grant is the row's sequence when the holder was named. It stays the same if a
	// later change of the row leaves the leadership as it is.
	Grant int64 `json:"grant,omitempty"`
	// Challenge is there while a candidate waits for a proof that the holder runs. The holder answers by removing it.
	Challenge hex `json:"challenge,omitempty"`
}

// hex is a number that is written in hexadecimal.
type hex uint64

// MarshalText implements encoding.TextMarshaler.
func (h hex) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(h), 16), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *hex) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	*h = hex(n)
	return err
}

// decodeLock is the inverse of encode; raw is nil if the row is missing.
func decodeLock(raw []byte) (lock, error) {
	if raw == nil {
		return lock{}, nil
	}
	sequence, text, err := coder.DecodeLock(raw)
	var r lockRecord
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil && (r.Grant <= 0 || r.Grant > sequence || (r.Holder != 0) != (r.Incarnation != 0)) {
		err = errors.New("it has no grant, or names no process")
	}
	if err != nil {
		return lock{}, fmt.Errorf("member: the lock row is not readable: %w", err)
	}
	return lock{uint64(r.Holder), uint64(r.Incarnation), r.Grant, uint64(r.Challenge), sequence, raw}, nil
}

// encode sets raw. Nothing in the row can fail to be written as JSON.
func (l lock) encode() lock {
	text, err := json.Marshal(lockRecord{hex(l.holder), hex(l.incarnation), l.grant, hex(l.challenge)})
	if err != nil {
		panic(err)
	}
	l.raw = coder.EncodeLock(l.sequence, text)
	return l
}

// grantTo returns the row that replaces l and makes the process lead; member 0
// releases the lock.
func (l lock) grantTo(member, incarnation uint64) *lock {
	next := lock{
		holder: member, incarnation: incarnation, grant: l.sequence + 1, sequence: l.sequence + 1,
	}.encode()
	return &next
}

// challengedBy returns the row that replaces l and has the challenge, or none; the leadership stays.
func (l lock) challengedBy(challenge uint64) *lock {
	next := l
	next.challenge = challenge
	next.sequence++
	next = next.encode()
	return &next
}
