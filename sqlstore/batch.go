package sqlstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
)

// OpKind says what a change of a batch does; see BatchWrite.
type OpKind uint8

// The kinds of changes, named after the methods of BatchWrite.
const (
	OpPutIfNotExist OpKind = iota
	OpCAS
	OpCASOrPut
	OpPut
	OpDel
	OpDelCurrent
)

// Op is one change of a batch. Value is nil for Del and DelCurrent; Old is the value that CAS,
// CASOrPut and DelCurrent expect. A batch does not use Old of others, which may say what they replace.
type Op struct {
	Kind  OpKind
	Key   []byte
	Value []byte
	Old   []byte
}

// Errors of a batch that breaks the contract of BatchWrite; nothing is written.
var (
	ErrCommitted    = errors.New("sqlstore: batch was committed before")
	ErrDuplicateKey = errors.New("sqlstore: key occurs twice in a batch")
	ErrNoRowVersion = errors.New("sqlstore: CASOrPut needs a versioned row and the row version it replaces")
	ErrSameValue    = errors.New("sqlstore: CAS needs a value other than the one it replaces")
)

// batch implements BatchWrite over a function that commits.
type batch struct {
	commit    func(context.Context, []Op) error
	ops       []Op
	size      int
	committed bool
}

// NewBatch returns an empty batch, for implementations of KvStorage. It checks the
// batch and calls commit at most once, with at least one change and no key twice.
// commit may reorder the changes and must not keep them.
func NewBatch(commit func(context.Context, []Op) error) BatchWrite { return &batch{commit: commit} }

func (b *batch) PutIfNotExist(key, val []byte)       { b.add(OpPutIfNotExist, key, val, nil) }
func (b *batch) CAS(key, newVal, oldVal []byte)      { b.add(OpCAS, key, newVal, oldVal) }
func (b *batch) CASOrPut(key, newVal, oldVal []byte) { b.add(OpCASOrPut, key, newVal, oldVal) }
func (b *batch) Put(key, val []byte)                 { b.add(OpPut, key, val, nil) }
func (b *batch) Del(key []byte)                      { b.add(OpDel, key, nil, nil) }
func (b *batch) DelCurrent(key, val []byte)          { b.add(OpDelCurrent, key, nil, val) }
func (b *batch) Len() int                            { return len(b.ops) }
func (b *batch) Size() int                           { return b.size }

// Commit implements BatchWrite.
func (b *batch) Commit(ctx context.Context) error {
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

func (b *batch) check() error {
	sorted := true // apart from the first, as large batches of the server are
	for i := range b.ops {
		op := &b.ops[i]
		sorted = sorted && (i < 2 || bytes.Compare(b.ops[i-1].Key, op.Key) < 0)
		if op.Kind == OpCASOrPut && !op.SwapsRowVersion() {
			return fmt.Errorf("%w: key %x", ErrNoRowVersion, op.Key)
		}
		if op.Kind == OpCAS && bytes.Equal(op.Value, op.Old) {
			return fmt.Errorf("%w: key %x", ErrSameValue, op.Key)
		}
	}
	if first := b.ops[0].Key; sorted {
		if _, again := slices.BinarySearchFunc(b.ops[1:], first, compareKey); again {
			return fmt.Errorf("%w: %x", ErrDuplicateKey, first)
		}
		return nil
	}
	keys := make([][]byte, len(b.ops))
	for i := range b.ops {
		keys[i] = b.ops[i].Key
	}
	slices.SortFunc(keys, bytes.Compare)
	for i := 1; i < len(keys); i++ {
		if bytes.Equal(keys[i-1], keys[i]) {
			return fmt.Errorf("%w: %x", ErrDuplicateKey, keys[i])
		}
	}
	return nil
}

func compareKey(op Op, key []byte) int { return bytes.Compare(op.Key, key) }

// Add adds ops to a batch.
func Add(b BatchWrite, ops []Op) {
	if b, ok := b.(*batch); ok {
		b.ops = slices.Grow(b.ops, len(ops))
	}
	for i := range ops {
		ops[i].addTo(b)
	}
}

func (op *Op) addTo(b BatchWrite) {
	switch op.Kind {
	case OpPutIfNotExist:
		b.PutIfNotExist(op.Key, op.Value)
	case OpCAS:
		b.CAS(op.Key, op.Value, op.Old)
	case OpCASOrPut:
		b.CASOrPut(op.Key, op.Value, op.Old)
	case OpPut:
		b.Put(op.Key, op.Value)
	case OpDel:
		b.Del(op.Key)
	case OpDelCurrent:
		b.DelCurrent(op.Key, op.Old)
	}
}

// SwapsRowVersion reports whether a CAS or CASOrPut can be judged by row versions alone: a
// versioned row whose new value says that it replaces the old value's row version, and is
// itself another one.
func (op Op) SwapsRowVersion() bool {
	if !coder.HasRowVersion(op.Key) {
		return false
	}
	own, prev, ok := coder.RowVersions(op.Value)
	old, _, okOld := coder.RowVersions(op.Old)
	return ok && okOld && prev == old && own != old
}

func (b *batch) add(kind OpKind, key, val, old []byte) {
	b.ops = append(b.ops, Op{Kind: kind, Key: key, Value: val, Old: old})
	b.size += len(key) + len(val)
}
