package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// aioForTest returns a context of its own.
func aioForTest(t *testing.T) *aioContext {
	t.Helper()
	a := newAIOContext()
	if a.err != nil {
		t.Skipf("this kernel has no io_submit, or permits no context: %v", a.err)
	}
	t.Cleanup(func() {
		_ = a.eventfd.Close()
		_, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, a.id, 0, 0)
	})
	return a
}

// TestKernelFlushes flushes files at the same time, of which the kernel takes one, and what cannot be flushed.
func TestKernelFlushes(t *testing.T) {
	t.Parallel()
	a := aioForTest(t)
	var all sync.WaitGroup
	for i := range 4 {
		f, err := os.Create(filepath.Join(t.TempDir(), strconv.Itoa(i)))
		require.NoError(t, err)
		t.Cleanup(func() { _ = f.Close() })
		all.Go(func() {
			for range 50 {
				_, err := f.WriteString("frame")
				assert.NoError(t, err)
				if err := a.flush(int(f.Fd())); !errors.Is(err, errNotBegun) {
					assert.NoError(t, err)
				}
			}
		})
	}
	all.Wait()

	require.ErrorIs(t, a.flush(-1), errNotBegun)
	device, err := os.Open("/dev/null")
	require.NoError(t, err)
	defer func() { _ = device.Close() }()
	require.ErrorIs(t, a.flush(int(device.Fd())), errNotBegun, "a file that cannot be flushed")

	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	require.NoError(t, a.flush(int(file.Fd())))
	a.Lock()
	require.ErrorIs(t, a.flush(int(file.Fd())), errNotBegun, "another flush is under way")
	a.Unlock()
	eventfd := a.eventfd
	a.eventfd = nil // it cannot be read
	require.NoError(t, a.flush(int(file.Fd())))
	a.eventfd = eventfd
	_, err = a.eventfd.Read(a.count[:])
	require.NoError(t, err)

	require.ErrorIs(t, ioEvent{res: -int64(unix.EIO)}.outcome(), unix.EIO)
}
