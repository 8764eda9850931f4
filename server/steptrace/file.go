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

// maxBytes is the most that a file of steps grows to.
const maxBytes = 256 << 20

// OpenFile returns a trace that appends steps to a file, a line of JSON each. Each step is written before Record
// returns, so that a killed process leaves all its steps. When the file is too large or cannot be written, the
// recording ends with a warning and the step Stop, and the node continues.
func OpenFile(path, node string, clock func() time.Duration, log *slog.Logger) (*Trace, error) {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("recording the protocol: %w", err)
	}
	info, err := out.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("recording the protocol: %w", err), out.Close())
	}
	t := New(node, clock, (&file{out: out, left: maxBytes - info.Size(), log: log}).write)
	t.close = out.Close
	return t, nil
}

// file writes lines. Its methods are called by one goroutine at a time.
type file struct {
	out  io.Writer
	left int64 // bytes; below 0: the recording is over
	log  *slog.Logger
}

func (f *file) write(s Step) {
	if f.left < 0 {
		return
	}
	line := encode(s)
	err := errors.New("the file is full")
	if f.left -= int64(len(line)); f.left >= 0 {
		_, err = f.out.Write(line)
	}
	if err != nil {
		f.left = -1
		f.log.Warn("the protocol is no longer recorded", "error", err)
		_, _ = f.out.Write(encode(Step{Node: s.Node, Kind: Stop, At: s.At})) // nothing is left to try
	}
}

func encode(s Step) []byte {
	line, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and numbers can be encoded
	}
	return append(line, '\n')
}
