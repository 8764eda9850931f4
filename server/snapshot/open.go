package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// Saved is a snapshot file that is open for reading.
type Saved struct {
	db *bbolt.DB
	// compacted is the compact revision, 0 for none.
	compacted int64
	// proved is true if the trailing hash matched.
	proved bool
}

// sector divides the size of a replica without a trailing hash.
const sector = 512

// openWait bounds the wait for a file lock of another process: a running etcd holds one
// on its database.
const openWait = time.Second

// Open opens a file and verifies its trailing SHA-256. A file without one, copied from
// the data directory of an etcd, is refused unless skipHash is set; then nothing is
// compared. Errors: ErrDamaged, ErrNoHash.
func Open(ctx context.Context, path string, skipHash bool) (_ *Saved, err error) {
	size, err := examine(ctx, path, skipHash)
	if err != nil {
		return nil, err
	}
	s := &Saved{proved: !skipHash}
	err = guarded(func() error {
		db, err := bbolt.Open(path, 0o400, &bbolt.Options{ReadOnly: true, Timeout: openWait})
		if errors.Is(err, bbolterrors.ErrTimeout) {
			return errors.New("another process has the file open, perhaps an etcd; copy the file first")
		}
		if err != nil {
			return damaged("%v", err)
		}
		s.db = db
		return s.check(ctx, path, size)
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// ErrNoHash is the error of a file without a trailing hash.
var ErrNoHash = errors.New("the file does not end with a hash as snapshots do; if it was copied from a data " +
	"directory, use --skip-hash-check")

// Close closes the file.
func (s *Saved) Close() error {
	if s.db == nil {
		return nil
	}
	return s.db.Close()
}

// examine returns the size of the replica in the file, and verifies the hash after it.
func examine(ctx context.Context, path string, skipHash bool) (size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is not a regular file", path)
	}
	size = info.Size()
	hashed := size%sector == sha256.Size
	if hashed {
		size -= sha256.Size
	}
	switch {
	case skipHash:
		return size, nil
	case size < sector:
		return 0, damaged("it has %d bytes", info.Size())
	case !hashed && size%sector != 0:
		return 0, damaged("a snapshot cannot have its size, %d bytes; it may be truncated", info.Size())
	case !hashed:
		return 0, ErrNoHash
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, cancellable{ctx, io.LimitReader(f, size)}); err != nil {
		return 0, err
	}
	want, err := io.ReadAll(f)
	if err == nil && !bytes.Equal(want, sum.Sum(nil)) {
		err = damaged("its SHA-256 is %x, but the recorded one is %x", sum.Sum(nil), want)
	}
	return size, err
}

// cancellable ends reading with a context.
type cancellable struct {
	ctx context.Context
	io.Reader
}

func (c cancellable) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.Reader.Read(b)
}

// check verifies that the parts that every snapshot has are present.
func (s *Saved) check(ctx context.Context, path string, size int64) error {
	return s.db.View(func(tx *bbolt.Tx) (err error) {
		if tx.Size() > size {
			return damaged("it is truncated: it should have %d bytes, and has %d", tx.Size(), size)
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		if err := checkPages(ctx, file, s.db.Info().PageSize, tx.Size(), uint64(tx.Cursor().Bucket().Root())); err != nil {
			return err
		}
		for _, name := range [][]byte{bucketKey, bucketMeta} {
			if tx.Bucket(name) == nil {
				return damaged("it is a bbolt database, but not of an etcd: it has no bucket %q", name)
			}
		}
		// An etcd that finds a compaction scheduled carries it out when it starts.
		for _, name := range [][]byte{metaScheduledCompact, metaFinishedCompact} {
			if raw := tx.Bucket(bucketMeta).Get(name); raw != nil {
				rev, _, _, err := decodeRevision(raw)
				if err != nil {
					return err
				}
				s.compacted = max(s.compacted, rev)
			}
		}
		return nil
	})
}

// guarded runs f, which reads pages with bbolt. The pages were checked, but another process
// may write to the file. bbolt does not check them: it panics, or reads past the end of the
// file.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = damaged("one of its pages cannot be read: %v", p)
		}
	}()
	return f()
}

func uint64From(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, damaged("%x is not a number", b)
	}
	return binary.BigEndian.Uint64(b), nil
}
