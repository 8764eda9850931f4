package member

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sqlbrain/sqlbrain/coder"
)

// lock is what the lock row says, as it was read or written. It is written when the
// leadership changes, and when its holder is challenged and answers.
type lock struct {
	Holder uint64 `json:"holder,omitempty"` // member id; 0: the lock was released
	// Incarnation names the process that leads.
	Incarnation uint64 `json:"incarnation,omitempty"`
	// Grant is the row's sequence when the holder was named, and names the leadership. It stays the same if a
	// later change of the row leaves the leadership as it is.
	Grant int64 `json:"grant,omitempty"`
	// Challenge asks the holder to prove that it runs; 0: none. The holder answers by removing it.
	Challenge uint64 `json:"challenge,omitempty"`

	sequence int64  // the row's mark
	raw      []byte // the whole value, for compare and swap; nil: the row is missing
}

// decodeLock is the inverse of encode; raw is nil if the row is missing.
func decodeLock(raw []byte) (lock, error) {
	if raw == nil {
		return lock{}, nil
	}
	l := lock{raw: raw}
	sequence, text, err := coder.DecodeLock(raw)
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	if err == nil && (l.Grant <= 0 || l.Grant > sequence || (l.Holder != 0) != (l.Incarnation != 0)) {
		err = errors.New("it has no grant, or names no process")
	}
	if err != nil {
		return lock{}, fmt.Errorf("member: the lock row is not readable: %w", err)
	}
	l.sequence = sequence
	return l, nil
}

// encode sets raw. Nothing in the row can fail to be written as JSON.
func (l lock) encode() lock {
	text, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	l.raw = coder.EncodeLock(l.sequence, text)
	return l
}

// grantTo returns the row that replaces l and makes the process lead; member 0
// releases the lock.
func (l lock) grantTo(member, incarnation uint64) lock {
	return lock{
		Holder: member, Incarnation: incarnation, Grant: l.sequence + 1, sequence: l.sequence + 1,
	}.encode()
}

// challengedBy returns the row that replaces l and has the challenge, or none; the leadership stays.
func (l lock) challengedBy(challenge uint64) lock {
	l.Challenge = challenge
	l.sequence++
	return l.encode()
}
