package snapshot

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func requireNoFiles(t *testing.T, dir string) {
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

func (c *cutting) Iter(ctx context.Context, r sqlstore.Range) sqlstore.Iter {
	r.PageBytes = 1
	return &cuttingIter{c.Store.Iter(ctx, r), c}
}

type cuttingIter struct {
	sqlstore.Iter
	c *cutting
}

func (i *cuttingIter) Next() bool {
	if i.c.cut != nil {
		if i.c.after--; i.c.after == 0 {
			i.c.cut()
		}
	}
	return i.Iter.Next()
}

func TestNothingIsLeftOfASnapshotThatWasCancelled(t *testing.T) {
	store := &cutting{Store: newStore(t)}
	b := serve(t, store)
	grow(t, b, 3)
	m := NewMaker(t.TempDir())
	m.runBytes = 1000 // so that there are runs by then
	ctx, cancel := context.WithCancel(t.Context())
	store.after, store.cut = 150, cancel
	_, err := m.Make(ctx, func() (*backend.Snapshot, error) { return b.OpenSnapshot(ctx) }, testAbout)
	require.ErrorIs(t, err, context.Canceled)
	requireNoFiles(t, m.dir)
	store.cut = nil

	// The turn was given back, twice.
	for range 2 * atATime {
		f, err := m.Make(t.Context(), func() (*backend.Snapshot, error) { return b.OpenSnapshot(t.Context()) }, testAbout)
		require.NoError(t, err)
		require.ErrorContains(t, f.Send(func([]byte, int64) error { return errors.New("gone") }), "gone")
		require.NoError(t, f.Close())
	}
	requireNoFiles(t, m.dir)
}

func TestSnapshotsWaitForEachOther(t *testing.T) {
	b := serve(t, newStore(t))
	m := NewMaker(t.TempDir())
	open := func() (*backend.Snapshot, error) { return b.OpenSnapshot(t.Context()) }
	var files []*File
	for range atATime {
		f, err := m.Make(t.Context(), open, testAbout)
		require.NoError(t, err)
		files = append(files, f)
	}
	ctx, cancel := context.WithCancel(t.Context())
	made := make(chan error)
	go func() {
		_, err := m.Make(ctx, func() (*backend.Snapshot, error) { panic("it is not its turn") }, testAbout)
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

func TestADirectoryThatCannotBeUsed(t *testing.T) {
	b := serve(t, newStore(t))
	file := t.TempDir() + "/file"
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := NewMaker(file).Make(t.Context(), func() (*backend.Snapshot, error) { return b.OpenSnapshot(t.Context()) }, testAbout)
	require.ErrorContains(t, err, "--snapshot-dir")
}
