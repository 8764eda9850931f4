// Package batch collects the changes of one sqlstore.BatchWrite, so that the
// engines differ only in how they carry them out.
package batch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
)

// Kind says what a change does; see sqlstore.BatchWrite.
type Kind uint8

// The kinds of changes.
const (
	PutIfNotExist Kind = iota
	CAS
	CASOrPut
	Put
	Del
	DelCurrent
)

// Op is one change. Value is nil for Del; Old is what CAS, CASOrPut and
// DelCurrent expect, nil otherwise.
type Op struct {
	Kind  Kind
	Key   []byte
	Value []byte
	Old   []byte
}

// Errors of a batch that breaks BatchWrite's contract; nothing is written.
var (
	ErrCommitted    = errors.New("sqlstore: batch was committed before")
	ErrDuplicateKey = errors.New("sqlstore: key occurs twice in a batch")
	ErrNotMarked    = errors.New("sqlstore: CASOrPut needs a marked row and the mark it replaces")
)

// Batch implements sqlstore.BatchWrite over a function that commits.
type Batch struct {
	commit    func(context.Context, []Op) error
	ops       []Op
	size      int
	committed bool
}

// New returns an empty batch. commit is called at most once, with at least one
// change, no key twice; it does not keep the slices.
func New(commit func(context.Context, []Op) error) *Batch { return &Batch{commit: commit} }

// PutIfNotExist implements sqlstore.BatchWrite.
func (b *Batch) PutIfNotExist(key, val []byte) { b.add(PutIfNotExist, key, val, nil) }

// CAS implements sqlstore.BatchWrite.
func (b *Batch) CAS(key, newVal, oldVal []byte) { b.add(CAS, key, newVal, oldVal) }

// CASOrPut implements sqlstore.BatchWrite.
func (b *Batch) CASOrPut(key, newVal, oldVal []byte) { b.add(CASOrPut, key, newVal, oldVal) }

// Put implements sqlstore.BatchWrite.
func (b *Batch) Put(key, val []byte) { b.add(Put, key, val, nil) }

// Del implements sqlstore.BatchWrite.
func (b *Batch) Del(key []byte) { b.add(Del, key, nil, nil) }

// DelCurrent implements sqlstore.BatchWrite.
func (b *Batch) DelCurrent(key, val []byte) { b.add(DelCurrent, key, nil, val) }

// Len implements sqlstore.BatchWrite.
func (b *Batch) Len() int { return len(b.ops) }

// Size implements sqlstore.BatchWrite.
func (b *Batch) Size() int { return b.size }

// Commit implements sqlstore.BatchWrite.
func (b *Batch) Commit(ctx context.Context) error {
	if b.committed {
		return ErrCommitted
	}
	b.committed = true
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(b.ops) == 0 {
		return nil
	}
	if err := b.check(); err != nil {
		return err
	}
	return b.commit(ctx, b.ops)
}

func (b *Batch) check() error {
	keys := make([][]byte, len(b.ops))
	for i, op := range b.ops {
		keys[i] = op.Key
		if op.Kind == CASOrPut && !op.Marked() {
			return fmt.Errorf("%w: key %x", ErrNotMarked, op.Key)
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	for i := 1; i < len(keys); i++ {
		if bytes.Equal(keys[i-1], keys[i]) {
			return fmt.Errorf("%w: %x", ErrDuplicateKey, keys[i])
		}
	}
	return nil
}

// Marked reports whether a CAS or CASOrPut can be judged by marks alone: a
// marked row whose new value says that it replaces the old value's mark, and is
// itself another one.
func (op Op) Marked() bool {
	if !coder.IsMarkedKey(op.Key) {
		return false
	}
	mark, prev, ok := coder.Marks(op.Value)
	old, _, okOld := coder.Marks(op.Old)
	return ok && okOld && prev == old && mark != old
}

func (b *Batch) add(kind Kind, key, val, old []byte) {
	b.ops = append(b.ops, Op{Kind: kind, Key: key, Value: val, Old: old})
	b.size += len(key) + len(val)
}
