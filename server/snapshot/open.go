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

// Saved is a snapshot file that is read.
type Saved struct {
	db *bbolt.DB
	// compacted is the compact revision, 0 for none.
	compacted int64
	// proved says that the hash behind the file was right.
	proved bool
}

// sector is what the size of a backend without a hash behind it is a multiple of.
const sector = 512

// openWait bounds the wait for a lock that another process has on the file: an etcd
// that runs has one on its own.
const openWait = time.Second

// Open opens a file and compares it with the SHA-256 behind it; a file without one,
// copied from an etcd's data directory, is refused unless skipHash says that nothing is to be
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
			return errors.New("another process has the file open: an etcd, perhaps; copy the file first")
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

// ErrNoHash says that there is no hash behind the file.
var ErrNoHash = errors.New("the file has no hash behind it, as snapshots have: with --skip-hash-check it is taken as it is, if it was copied from a data directory")

// Close closes the file.
func (s *Saved) Close() error {
	if s.db == nil {
		return nil
	}
	return s.db.Close()
}

// examine returns the size of the backend in the file, and compares the hash behind it.
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
		return 0, fmt.Errorf("%s is no file", path)
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
		return 0, damaged("it has %d bytes, which is no snapshot's size; it may be cut off", info.Size())
	case !hashed:
		return 0, ErrNoHash
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, cancellable{ctx, io.LimitReader(f, size)}); err != nil {
		return 0, err
	}
	want, err := io.ReadAll(f)
	if err == nil && !bytes.Equal(want, sum.Sum(nil)) {
		err = damaged("its SHA-256 is %x, the one behind it %x", sum.Sum(nil), want)
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

// check looks at what a snapshot must have.
func (s *Saved) check(ctx context.Context, path string, size int64) error {
	return s.db.View(func(tx *bbolt.Tx) (err error) {
		if tx.Size() > size {
			return damaged("it should have %d bytes, and has %d: it is cut off", tx.Size(), size)
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
				return damaged("it is a bbolt database, but has no bucket %q: not an etcd's", name)
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

// guarded runs f, which reads pages by bbolt. They were looked at, but somebody may write to
// the file: bbolt takes them as they are, and panics, or reads behind the end of the file.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = damaged("a page of it cannot be read: %v", p)
		}
	}()
	return f()
}

func uint64From(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, damaged("%x is no number", b)
	}
	return binary.BigEndian.Uint64(b), nil
}
