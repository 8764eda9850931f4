package steptrace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
)

const (
	// maxBytes is the most that a file of steps grows to.
	maxBytes = 256 << 20
	// deadline bounds how long a step may wait for the file. A recording that ends is lost to the test that wants
	// it, so that this is longer than a busy machine keeps a write waiting.
	deadline = 10 * time.Second
)

// OpenFile returns a trace that appends steps to a file, a line of JSON each. Each step is written before Record
// returns, so that a killed process leaves all its steps. When the file is too large, cannot be written or does not
// take a step in time, the recording ends with a warning and the step Stop, and the node continues.
func OpenFile(path, node string, clock func() time.Duration, log *slog.Logger) (*Trace, error) {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("recording the protocol: %w", err)
	}
	info, err := out.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("recording the protocol: %w", err), out.Close())
	}
	f := newFile(out, log)
	f.size = info.Size()
	t := New(node, clock, f.write)
	t.close = f.close
	return t, nil
}

// file writes lines in a goroutine, so that a disk that hangs holds a step up for deadline only. All methods are
// called by one goroutine at a time.
type file struct {
	log  *slog.Logger
	size int64
	max  int64
	wait time.Duration

	lines   chan []byte
	results chan error // one for each line; it has room for a late one and that of Stop
	ended   chan error // the error of closing the file
	over    bool       // lines is closed
}

func newFile(out io.WriteCloser, log *slog.Logger) *file {
	f := &file{log: log, max: maxBytes, wait: deadline, lines: make(chan []byte, 1), results: make(chan error, 2),
		ended: make(chan error, 1)}
	go f.run(out)
	return f
}

// run writes lines until there are no more. It owns out.
func (f *file) run(out io.WriteCloser) {
	for line := range f.lines {
		_, err := out.Write(line)
		f.results <- err
	}
	f.ended <- out.Close()
}

func (f *file) write(s Step) {
	if f.over {
		return
	}
	line := encode(s)
	if f.size+int64(len(line)) > f.max {
		f.stop(s, errors.New("the file is full"))
		return
	}
	if err := f.append(line); err != nil {
		f.stop(s, err)
	}
}

var errSlow = errors.New("the disk is too slow")

// append writes a line, or returns why it did not in time. Then no further line may be appended after errSlow.
func (f *file) append(line []byte) error {
	timer := time.NewTimer(f.wait)
	defer timer.Stop()
	f.lines <- line // has room: the line before was written
	select {
	case err := <-f.results:
		f.size += int64(len(line))
		return err
	case <-timer.C:
	}
	select {
	case err := <-f.results: // it came while this process did not run
		f.size += int64(len(line))
		return err
	default:
		return errSlow
	}
}

// stop ends the recording before s because of cause. The step Stop comes after a line that is still being written.
func (f *file) stop(s Step, cause error) {
	f.log.Warn("the protocol is no longer recorded", "error", cause)
	f.over = true
	f.lines <- encode(Step{Node: s.Node, Kind: Stop, At: s.At})
	close(f.lines)
}

// close ends the goroutine. It waits for it, unless the disk hangs.
func (f *file) close() error {
	if !f.over {
		f.over = true
		close(f.lines)
	}
	timer := time.NewTimer(f.wait)
	defer timer.Stop()
	select {
	case err := <-f.ended:
		return err
	case <-timer.C:
		return fmt.Errorf("recording the protocol: %w", errSlow)
	}
}

func encode(s Step) []byte {
	line, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and numbers can be encoded
	}
	return append(line, '\n')
}
