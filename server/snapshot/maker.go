package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
)

// Maker makes snapshot files, atATime at once. Safe for concurrent use.
type Maker struct {
	dir      string
	slots    chan struct{}
	runBytes int
}

// atATime bounds the snapshots of one server that are being made or sent. Further calls
// wait, because each snapshot takes twice its size on disk.
const atATime = 2

// TempPrefix begins the name of a Maker's temporary directory.
const TempPrefix = "sqlbrain-snapshot-"

// NewMaker returns a maker that keeps its temporary files in dir, which Make creates if
// necessary.
func NewMaker(dir string) *Maker {
	return &Maker{dir: dir, slots: make(chan struct{}, atATime), runBytes: defaultRunBytes}
}

// Member is a member of the cluster, as etcd stores it.
type Member struct {
	ID         uint64   `json:"id"`
	PeerURLs   []string `json:"peerURLs"`
	Name       string   `json:"name,omitempty"`
	ClientURLs []string `json:"clientURLs,omitempty"`
}

// About describes the cluster in a snapshot.
type About struct {
	Members                        []Member
	ClusterVersion, StorageVersion string
}

// File is a finished snapshot: etcd's replica, without the trailing hash. The caller must
// close it, which removes it.
type File struct {
	io.Reader
	Size int64

	file    *os.File
	dir     string
	release func()
}

// Close removes the file.
func (f *File) Close() error {
	defer f.release()
	return errors.Join(f.file.Close(), os.RemoveAll(f.dir))
}

// Make waits for a free slot, opens the snapshot and writes it to a file. Errors: those
// of open, of ctx and of the disk.
func (m *Maker) Make(ctx context.Context, open func() (*export.Snapshot, error), about About) (_ *File, err error) {
	select {
	case m.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	release := func() { <-m.slots }
	defer func() {
		if err != nil {
			release()
		}
	}()
	s, err := open()
	if err != nil {
		return nil, err
	}
	err = os.MkdirAll(m.dir, 0o700)
	var dir string
	if err == nil {
		dir, err = os.MkdirTemp(m.dir, TempPrefix)
	}
	if err != nil {
		return nil, fmt.Errorf("the directory of snapshots, --snapshot-dir: %w", err)
	}
	file, size, err := write(ctx, dir, m.runBytes, s, about)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &File{Reader: io.LimitReader(file, size), Size: size, file: file, dir: dir, release: release}, nil
}

// blockBytes is the size of the blocks in which a file is sent, as in etcd.
const blockBytes = 32 << 10

// Send calls send with the file's bytes, block by block, and then with their hash.
// remaining is the number of bytes of the file that follow. send may keep the block.
func (f *File) Send(send func(block []byte, remaining int64) error) error {
	sum := sha256.New()
	for remaining := f.Size; remaining > 0; {
		block := make([]byte, min(blockBytes, remaining))
		if _, err := io.ReadFull(f.Reader, block); err != nil {
			return fmt.Errorf("reading the snapshot: %w", err)
		}
		remaining -= int64(len(block))
		sum.Write(block)
		if err := send(block, remaining); err != nil {
			return err
		}
	}
	return send(sum.Sum(nil), 0)
}
