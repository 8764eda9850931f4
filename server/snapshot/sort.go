package snapshot

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
)

// sorter sorts versions by revision. It receives them nearly in the order of keys and keeps up
// to runBytes in memory. Larger sets go to disk in sorted runs, which merge combines.
type sorter struct {
	dir      string // of the runs
	runBytes int

	pending []stored
	bytes   int
	runs    []*os.File
}

// stored is a version as it goes into the file.
type stored struct {
	key, value []byte
	// next is the revision of the version that replaced it, 0 for none.
	next int64
}

const (
	// defaultRunBytes bounds the memory for versions that are being sorted.
	defaultRunBytes = 16 << 20
	// mergeBytes is the memory for reading all runs, and minRunBuffer the minimum for
	// one run.
	mergeBytes   = 8 << 20
	minRunBuffer = 16 << 10
	// storedOverhead is the memory that a version takes in addition to its bytes.
	storedOverhead = 100
)

func (s *sorter) add(v export.Version) error {
	if !v.Tombstone {
		if err := checkVersion(v.Record); err != nil {
			return err
		}
	}
	value, err := EncodeValue(v.Record)
	if err != nil {
		return err
	}
	key := encodeRevision(v.ModRevision, int64(v.Sub), v.Tombstone)
	s.pending = append(s.pending, stored{key, value, v.Next})
	if s.bytes += len(key) + len(value) + storedOverhead; s.bytes < s.runBytes {
		return nil
	}
	return s.spill()
}

func (s *sorter) sortPending() {
	slices.SortFunc(s.pending, func(a, b stored) int { return bytes.Compare(a.key, b.key) })
}

// spill writes what is pending as a run.
func (s *sorter) spill() error {
	s.sortPending()
	f, err := createTemp(s.dir, "run-")
	if err != nil {
		return err
	}
	s.runs = append(s.runs, f)
	w := bufio.NewWriterSize(f, 256<<10)
	for _, v := range s.pending {
		if err := v.write(w); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	s.pending, s.bytes = nil, 0
	_, err = f.Seek(0, io.SeekStart)
	return err
}

// merge calls emit with all versions in the order of revisions. emit may not keep
// them.
func (s *sorter) merge(emit func(stored) error) error {
	s.sortPending()
	if len(s.runs) == 0 {
		for _, v := range s.pending {
			if err := emit(v); err != nil {
				return err
			}
		}
		return nil
	}
	if len(s.pending) > 0 {
		if err := s.spill(); err != nil {
			return err
		}
	}
	var h runHeap
	size := max(mergeBytes/len(s.runs), minRunBuffer)
	for _, f := range s.runs {
		r := &run{r: bufio.NewReaderSize(f, size)}
		if more, err := r.next(); err != nil {
			return err
		} else if more {
			h = append(h, r)
		}
	}
	heap.Init(&h)
	for len(h) > 0 {
		if err := emit(h[0].head); err != nil {
			return err
		}
		more, err := h[0].next()
		switch {
		case err != nil:
			return err
		case more:
			heap.Fix(&h, 0)
		default:
			heap.Pop(&h)
		}
	}
	return nil
}

func (s *sorter) close() error {
	var errs []error
	for _, f := range s.runs {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// write writes v in the format of a run: len(key)(1) key next(8) len(value)(4) value.
func (v stored) write(w io.Writer) error {
	b := append([]byte{byte(len(v.key))}, v.key...)
	b = binary.BigEndian.AppendUint64(b, uint64(v.next))
	b = binary.BigEndian.AppendUint32(b, uint32(len(v.value)))
	if _, err := w.Write(b); err != nil {
		return err
	}
	_, err := w.Write(v.value)
	return err
}

// run is a run that is being read.
type run struct {
	r    *bufio.Reader
	head stored
}

// next moves to the next version; false at the end.
func (r *run) next() (bool, error) {
	n, err := r.r.ReadByte()
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	head := make([]byte, int(n)+12)
	if _, err := io.ReadFull(r.r, head); err != nil {
		return false, fmt.Errorf("a run is cut off: %w", err)
	}
	key, rest := head[:n:n], head[n:]
	value := make([]byte, binary.BigEndian.Uint32(rest[8:]))
	if _, err := io.ReadFull(r.r, value); err != nil {
		return false, fmt.Errorf("a run is cut off: %w", err)
	}
	r.head = stored{key, value, int64(binary.BigEndian.Uint64(rest))}
	return true, nil
}

// runHeap has the run with the lowest revision in front.
type runHeap []*run

func (h runHeap) Len() int           { return len(h) }
func (h runHeap) Less(i, j int) bool { return bytes.Compare(h[i].head.key, h[j].head.key) < 0 }
func (h runHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *runHeap) Push(x any)        { *h = append(*h, x.(*run)) }
func (h *runHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// createTemp creates a file and unlinks it, if the system allows that for an open file.
// On other systems the file is removed with its directory.
func createTemp(dir, pattern string) (*os.File, error) {
	f, err := os.CreateTemp(dir, pattern)
	if err == nil {
		_ = os.Remove(f.Name())
	}
	return f, err
}
