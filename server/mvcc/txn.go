package mvcc

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/sqlbrain/sqlbrain/coder"
)

// Writes reports whether t has to pass the sequencer.
func (t *Txn) Writes() bool {
	return t.any(func(op Op) bool { return op.Put != nil || op.Delete != nil })
}

// Puts reports whether t may put a key, which takes space.
func (t *Txn) Puts() bool {
	return t.any(func(op Op) bool { return op.Put != nil })
}

func (t *Txn) any(is func(Op) bool) bool {
	for _, ops := range [][]Op{t.Then, t.Else} {
		for _, op := range ops {
			if is(op) || op.Txn != nil && op.Txn.any(is) {
				return true
			}
		}
	}
	return false
}

// Creates returns the key that t puts if it does not exist, and whose condition is
// t's only one; nil if t is of another kind.
func (t *Txn) Creates() []byte {
	if len(t.Compares) != 1 || !t.Compares[0].absent() {
		return nil
	}
	key := t.Compares[0].Key
	for _, op := range t.Then {
		if op.Put != nil && bytes.Equal(op.Put.Key, key) {
			return key
		}
	}
	return nil
}

// absent reports whether c holds only for a single key that does not exist.
func (c *Compare) absent() bool {
	return len(c.End) == 0 && c.Result == CompareEqual && c.Int == 0 &&
		(c.Target == CompareVersion || c.Target == CompareCreate || c.Target == CompareMod)
}

// Matches reports whether the condition holds for r.
func (c *Compare) Matches(r *coder.Record) bool {
	var n int
	switch c.Target {
	case CompareVersion:
		n = cmp.Compare(r.Version, c.Int)
	case CompareCreate:
		n = cmp.Compare(r.CreateRevision, c.Int)
	case CompareMod:
		n = cmp.Compare(r.ModRevision, c.Int)
	case CompareLease:
		n = cmp.Compare(r.Lease, c.Int)
	case CompareValue:
		n = bytes.Compare(r.Value, c.Value)
	}
	switch c.Result {
	case CompareEqual:
		return n == 0
	case CompareNotEqual:
		return n != 0
	case CompareGreater:
		return n > 0
	default:
		return n < 0
	}
}

// putOverhead is what etcd counts for a put against the quota, in addition to key and value.
const putOverhead = 256

// Cost returns what etcd counts for t against the quota: the larger of its two branches.
func (t *Txn) Cost() int64 { return max(cost(t.Then), cost(t.Else)) }

func cost(ops []Op) (sum int64) {
	for _, op := range ops {
		switch {
		case op.Put != nil:
			sum += putOverhead + int64(len(op.Put.Key)+len(op.Put.Value))
		case op.Txn != nil:
			sum += op.Txn.Cost()
		}
	}
	return sum
}

const (
	// MaxAnswerBytes bounds what the operations of a transaction return together, unless one alone returns more.
	MaxAnswerBytes = 256 << 20
	// answerOverhead is about what a record takes in an answer in addition to its key and value.
	answerOverhead = 256
)

// AnswerSize is about how many bytes the records of an answer take.
type AnswerSize int

// Add counts the records of one more operation. It returns ErrTooLarge if they are too many.
func (s *AnswerSize) Add(records ...*coder.Record) error {
	n := len(records) * answerOverhead
	for _, r := range records {
		n += len(r.Key) + len(r.Value)
	}
	if *s > 0 && int(*s)+n > MaxAnswerBytes {
		return fmt.Errorf("%w: the transaction returns more than %d bytes", ErrTooLarge, MaxAnswerBytes)
	}
	*s += AnswerSize(n)
	return nil
}
