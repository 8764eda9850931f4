package steptrace

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
)

var quiet = slog.New(slog.DiscardHandler)

func decode(t *testing.T, text string) (steps []Step) {
	t.Helper()
	for line := range strings.Lines(text) {
		var s Step
		require.NoError(t, json.Unmarshal([]byte(line), &s), "%q", line)
		steps = append(steps, s)
	}
	return steps
}

func TestFileHasEveryStepAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steps")
	var want []Step
	for range 2 { // a process that is started again appends
		trace, err := OpenFile(path, "n1", func() time.Duration { return time.Minute }, quiet)
		require.NoError(t, err)
		for _, s := range []Step{
			{Kind: Open, Revision: 3},
			{Kind: Commit, Token: coder.FenceToken{Sequence: 2, Term: 1, Revision: 4, Attempt: -1},
				Expected: coder.FenceToken{Sequence: 1}},
			{Kind: Answer, Result: Written},
			{Kind: Read, Began: time.Second, Revision: 4, Leased: true},
		} {
			trace.Record(s)
			s.Node, s.At = "n1", time.Minute
			want = append(want, s)
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, want, decode(t, string(content)), "before the file is closed")
		}
		require.NoError(t, trace.Close())
		trace.Record(Step{Kind: Show})
	}
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, decode(t, string(content)))
}

func TestFileThatCannotBeOpened(t *testing.T) {
	_, err := OpenFile(filepath.Join(t.TempDir(), "none", "steps"), "n1", time.Since(time.Now()).Abs, quiet)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// disk is a file whose Write does what a test says.
type disk struct {
	strings.Builder
	before func() error // each Write
	closed chan struct{}
}

func (d *disk) Write(p []byte) (int, error) {
	if err := d.before(); err != nil {
		return 0, err
	}
	return d.Builder.Write(p)
}

func (d *disk) Close() error { close(d.closed); return nil }

func newDisk(before func() error) *disk { return &disk{before: before, closed: make(chan struct{})} }

func TestFullFileEndsTheRecording(t *testing.T) {
	d := newDisk(func() error { return nil })
	f := newFile(d, quiet)
	line := encode(Step{Kind: Show, Revision: 1})
	f.max = int64(2*len(line) + 1)
	for rev := range int64(4) {
		f.write(Step{Kind: Show, Revision: rev + 1})
	}
	<-d.closed
	require.NoError(t, f.close())
	require.Equal(t, []Step{{Kind: Show, Revision: 1}, {Kind: Show, Revision: 2}, {Kind: Stop}}, decode(t, d.String()))
}

func TestFailedWriteEndsTheRecording(t *testing.T) {
	broken := errors.New("no space left on device")
	d := newDisk(func() error { return broken })
	f := newFile(d, quiet)
	f.write(Step{Kind: Show, Revision: 1})
	f.write(Step{Kind: Show, Revision: 2})
	<-d.closed
	require.NoError(t, f.close())
	require.Empty(t, d.String())
}

// A disk that hangs delays one step, and no further ones.
func TestSlowDiskEndsTheRecording(t *testing.T) {
	hangs := make(chan struct{})
	d := newDisk(func() error { <-hangs; return nil })
	f := newFile(d, quiet)
	f.wait = time.Millisecond
	f.write(Step{Kind: Show, Revision: 1})
	f.write(Step{Kind: Show, Revision: 2})
	require.ErrorIs(t, f.close(), errSlow)
	close(hangs)
	<-d.closed
	require.Equal(t, []Step{{Kind: Show, Revision: 1}, {Kind: Stop}}, decode(t, d.String()))
}
