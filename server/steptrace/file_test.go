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

// disk is a file whose Write fails if it has an error.
type disk struct {
	strings.Builder
	err error
}

func (d *disk) Write(p []byte) (int, error) {
	if d.err != nil {
		return 0, d.err
	}
	return d.Builder.Write(p)
}

func TestFullFileEndsTheRecording(t *testing.T) {
	var d disk
	f := file{out: &d, left: int64(2*len(encode(Step{Kind: Show, Revision: 1})) + 1), log: quiet}
	for rev := range int64(4) {
		f.write(Step{Kind: Show, Revision: rev + 1})
	}
	require.Equal(t, []Step{{Kind: Show, Revision: 1}, {Kind: Show, Revision: 2}, {Kind: Stop}}, decode(t, d.String()))
}

func TestFailedWriteEndsTheRecording(t *testing.T) {
	d := disk{err: errors.New("no space left on device")}
	f := file{out: &d, left: maxBytes, log: quiet}
	f.write(Step{Kind: Show, Revision: 1})
	d.err = nil
	f.write(Step{Kind: Show, Revision: 2})
	require.Empty(t, d.String())
}
