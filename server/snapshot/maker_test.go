package snapshot

import (
	"context"
	"errors"
	"iter"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func requireNoFiles(t testing.TB, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// cutting ends a context in the middle of an iteration.
type cutting struct {
	sqlstore.Store
	after int
	cut   context.CancelFunc
}

func (c *cutting) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	r.PageBytes = 1
	return func(yield func(sqlstore.Row, error) bool) {
		for row, err := range c.Store.Iter(ctx, r) {
			if c.cut != nil {
				if c.after--; c.after == 0 {
					c.cut()
				}
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

func TestCancelledSnapshotLeavesNoFiles(t *testing.T) {
	store := &cutting{Store: newStore(t)}
	b := serve(t, store)
	grow(t, b, 3)
	m := NewMaker(t.TempDir())
	m.runBytes = 1000 // so that there are runs by then
	ctx, cancel := context.WithCancel(t.Context())
	store.after, store.cut = 150, cancel
	_, err := m.Make(ctx, opener(ctx, b), testAbout)
	require.ErrorIs(t, err, context.Canceled)
	requireNoFiles(t, m.dir)
	store.cut = nil

	// The turn was given back, twice.
	for range 2 * atATime {
		f, err := m.Make(t.Context(), opener(t.Context(), b), testAbout)
		require.NoError(t, err)
		require.ErrorContains(t, f.Send(func([]byte, int64) error { return errors.New("gone") }), "gone")
		require.NoError(t, f.Close())
	}
	requireNoFiles(t, m.dir)
}

func TestSnapshotsWaitForEachOther(t *testing.T) {
	b := serve(t, newStore(t))
	m := NewMaker(t.TempDir())
	open := opener(t.Context(), b)
	var files []*File
	for range atATime {
		f, err := m.Make(t.Context(), open, testAbout)
		require.NoError(t, err)
		files = append(files, f)
	}
	ctx, cancel := context.WithCancel(t.Context())
	made := make(chan error)
	go func() {
		_, err := m.Make(ctx, func() (*export.Snapshot, error) { panic("it is not its turn") }, testAbout)
		made <- err
	}()
	cancel()
	require.ErrorIs(t, <-made, context.Canceled)
	for _, f := range files {
		require.NoError(t, f.Close())
	}
	f, err := m.Make(t.Context(), open, testAbout)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestUnusableDirectoryIsNamed(t *testing.T) {
	b := serve(t, newStore(t))
	file := t.TempDir() + "/file"
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := NewMaker(file).Make(t.Context(), opener(t.Context(), b), testAbout)
	require.ErrorContains(t, err, "--snapshot-dir")
}
