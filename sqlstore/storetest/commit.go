package storetest

import (
	"bytes"
	"context"
	"slices"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Batch is a batch of a test's store. It knows what it writes.
type Batch struct {
	sqlstore.BatchWrite
	commit  func(ctx context.Context, b *Batch) error
	written [][]byte
	removes bool
}

// OnCommit returns batch with another commit: commit, which may call that of batch as b.BatchWrite.Commit. A
// store of a test answers BeginBatchWrite with it, to make commits fail, wait, or answer what is not true.
func OnCommit(batch sqlstore.BatchWrite, commit func(ctx context.Context, b *Batch) error) *Batch {
	return &Batch{BatchWrite: batch, commit: commit}
}

// Commit implements sqlstore.BatchWrite.
func (b *Batch) Commit(ctx context.Context) error { return b.commit(ctx, b) }

// Writes reports whether the batch writes the row of key, whatever the condition.
func (b *Batch) Writes(key []byte) bool {
	return slices.ContainsFunc(b.written, func(k []byte) bool { return bytes.Equal(k, key) })
}

// Removes reports whether the batch removes rows without a condition.
func (b *Batch) Removes() bool { return b.removes }

func (b *Batch) write(key []byte) { b.written = append(b.written, bytes.Clone(key)) }

// PutIfNotExist implements sqlstore.BatchWrite.
func (b *Batch) PutIfNotExist(key, val []byte) {
	b.write(key)
	b.BatchWrite.PutIfNotExist(key, val)
}

// CAS implements sqlstore.BatchWrite.
func (b *Batch) CAS(key, newVal, oldVal []byte) {
	b.write(key)
	b.BatchWrite.CAS(key, newVal, oldVal)
}

// CASOrPut implements sqlstore.BatchWrite.
func (b *Batch) CASOrPut(key, newVal, oldVal []byte) {
	b.write(key)
	b.BatchWrite.CASOrPut(key, newVal, oldVal)
}

// Put implements sqlstore.BatchWrite.
func (b *Batch) Put(key, val []byte) {
	b.write(key)
	b.BatchWrite.Put(key, val)
}

// Del implements sqlstore.BatchWrite.
func (b *Batch) Del(key []byte) {
	b.removes = true
	b.BatchWrite.Del(key)
}
