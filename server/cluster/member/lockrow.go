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
	Holder      string `json:"holderIdentity"`
	Incarnation string `json:"incarnation,omitempty"`
	// Grant is the row's sequence when the holder was named. It stays the same if a
	// later change of the row leaves the leadership as it is.
	Grant int64 `json:"grant,omitempty"`
	// Challenge is there while a candidate waits for a proof that the holder runs. The holder answers by removing it.
	Challenge string `json:"challenge,omitempty"`
}

// decodeLock is the inverse of encode; raw is nil if the row is missing.
func decodeLock(raw []byte) (lock, error) {
	if raw == nil {
		return lock{}, nil
	}
	l := lock{raw: raw}
	sequence, text, err := coder.DecodeLock(raw)
	var record lockRecord
	if err == nil {
		err = json.Unmarshal(text, &record)
	}
	if err == nil && record.Holder != "" {
		l.holder, err = strconv.ParseUint(record.Holder, 16, 64)
	}
	if err == nil && record.Incarnation != "" {
		l.incarnation, err = strconv.ParseUint(record.Incarnation, 16, 64)
	}
	if err == nil && record.Challenge != "" {
		l.challenge, err = strconv.ParseUint(record.Challenge, 16, 64)
	}
	if err == nil && (record.Grant <= 0 || record.Grant > sequence || (l.holder != 0) != (l.incarnation != 0)) {
		err = errors.New("it has no grant, or names no process")
	}
	if err != nil {
		return lock{}, fmt.Errorf("member: the lock row is not readable: %w", err)
	}
	l.sequence, l.grant = sequence, record.Grant
	return l, nil
}

// encode sets raw. Nothing in the row can fail to be written as JSON.
func (l lock) encode() lock {
	record := lockRecord{Grant: l.grant}
	if l.holder != 0 {
		record.Holder, record.Incarnation = strconv.FormatUint(l.holder, 16), strconv.FormatUint(l.incarnation, 16)
	}
	if l.challenge != 0 {
		record.Challenge = strconv.FormatUint(l.challenge, 16)
	}
	text, err := json.Marshal(record)
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
