package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// pageCache stands for Linux's: the files have what programs read, and this is what of it is on disk. A page whose
// flush failed is taken for flushed. Tests with it are not parallel, and use it in one goroutine.
type pageCache struct {
	t    *testing.T
	disk map[string]*onDisk     // by path
	fail func(path string) bool // whether a flush fails
	dead bool                   // the process has exited, and changes nothing
}

type onDisk struct {
	content []byte
	dirty   map[int64]bool // numbers of pages
	resized bool
}

const cachePage = 4096

var (
	cache                *pageCache
	plainOpen            uintptr
	cacheMethods         [2]sqlite3.Tsqlite3_io_methods // of databases and of logs
	plainWrite, plainCut uintptr
	plainSync            uintptr
)

// simulatePageCache puts the files that are opened during the test into a page cache.
func simulatePageCache(t *testing.T) *pageCache {
	t.Helper()
	require.NoError(t, registerVFS())
	c := &pageCache{t: t, disk: map[string]*onDisk{}, fail: func(string) bool { return false }}
	cache, plainOpen = c, baseVFS.FxOpen
	baseVFS.FxOpen = pointer(cachedOpen)
	replaceDataSync(t, c.flushDescriptor, c.flushDescriptor)
	rewrite, dir := rewriteLog, flushDir
	rewriteLog = func(path string) error {
		c.changed(path, 0, int64(len(c.read(path))))
		return c.flush(path)
	}
	flushDir = func(string) error { return nil }
	exit = func(int) { c.dead = true }
	frames, pages, wait := checkpointFrames, countPages, restartWait
	checkpointFrames, countPages, restartWait = 30, 5, time.Millisecond
	t.Cleanup(func() {
		baseVFS.FxOpen, rewriteLog, flushDir, exit = plainOpen, rewrite, dir, os.Exit
		checkpointFrames, countPages, restartWait = frames, pages, wait
	})
	return c
}

func cachedOpen(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32 {
	rc := function[openFile](plainOpen)(tls, vfs, name, file, flags, out)
	kind := 0
	switch {
	case rc != sqlite3.SQLITE_OK:
		return rc
	case flags&sqlite3.SQLITE_OPEN_WAL != 0:
		kind = 1
	case flags&sqlite3.SQLITE_OPEN_MAIN_DB == 0:
		return rc
	}
	f, m := at[sqlite3.Tsqlite3_file](file), &cacheMethods[kind]
	*m = *at[sqlite3.Tsqlite3_io_methods](f.FpMethods)
	plainWrite, plainCut, plainSync = m.FxWrite, m.FxTruncate, m.FxSync
	m.FxWrite, m.FxTruncate, m.FxSync = pointer(cachedWrite), pointer(cachedTruncate), pointer(cachedSync)
	f.FpMethods = uintptr(unsafe.Pointer(m))
	return rc
}

// nameOf returns the path of an open file.
func nameOf(descriptor int) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", descriptor))
	if err != nil {
		panic(err)
	}
	return path
}

func cachedWrite(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32 {
	if cache.dead {
		return sqlite3.SQLITE_IOERR_WRITE
	}
	rc := function[transfer](plainWrite)(tls, file, data, n, offset)
	cache.changed(nameOf(int(at[sqlite3.TunixFile](file).Fh)), offset, int64(n))
	return rc
}

func cachedTruncate(tls *libc.TLS, file uintptr, size int64) int32 {
	if cache.dead {
		return sqlite3.SQLITE_IOERR_TRUNCATE
	}
	rc := function[func(tls *libc.TLS, file uintptr, size int64) int32](plainCut)(tls, file, size)
	cache.changed(nameOf(int(at[sqlite3.TunixFile](file).Fh)), 0, 0)
	return rc
}

func cachedSync(_ *libc.TLS, file uintptr, _ int32) int32 {
	if cache.flushDescriptor(int(at[sqlite3.TunixFile](file).Fh)) != nil {
		return sqlite3.SQLITE_IOERR_FSYNC
	}
	return sqlite3.SQLITE_OK
}

func (c *pageCache) file(path string) *onDisk {
	if c.disk[path] == nil {
		c.disk[path] = &onDisk{dirty: map[int64]bool{}}
	}
	return c.disk[path]
}

// changed says that the process has changed n bytes of a file, or its size.
func (c *pageCache) changed(path string, offset, n int64) {
	f := c.file(path)
	f.resized = true
	for page := offset / cachePage; page*cachePage < offset+n; page++ {
		f.dirty[page] = true
	}
}

func (c *pageCache) flushDescriptor(descriptor int) error { return c.flush(nameOf(descriptor)) }

func (c *pageCache) flush(path string) error {
	if c.dead {
		return unix.EIO
	}
	f := c.file(path)
	failed := c.fail(path)
	if !failed {
		f.content = f.mixed(c.read(path), func(int64) bool { return true })
		f.resized = false
	}
	f.dirty = map[int64]bool{}
	if failed {
		return unix.EIO
	}
	return nil
}

func (c *pageCache) read(path string) []byte {
	content, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(c.t, err)
	}
	return content
}

// mixed returns what is on disk after the chosen ones of the dirty sectors, of 512 bytes, were written there.
func (f *onDisk) mixed(now []byte, chosen func(sector int64) bool) []byte {
	out := slices.Clone(f.content)
	if f.resized && chosen(-1) {
		out = append(out, make([]byte, max(0, len(now)-len(out)))...)[:len(now)]
	}
	for page := range f.dirty {
		for at := page * cachePage; at < min((page+1)*cachePage, int64(len(now))); at += 512 {
			if !chosen(at / 512) {
				continue
			}
			end := min(at+512, int64(len(now)))
			out = append(out, make([]byte, max(0, int(end)-len(out)))...)
			copy(out[at:end], now[at:end])
		}
	}
	return out
}

// losePower writes to a new directory what may be on disk if power is lost now, and returns its URL.
func (c *pageCache) losePower(database string, r *rand.Rand) string {
	raw := newURL(c.t)
	after := parse(c.t, raw).Path
	require.NoError(c.t, os.Mkdir(filepath.Dir(after), 0o700))
	for _, suffix := range []string{"", logSuffix} {
		f := c.file(database + suffix)
		share := r.IntN(5) // 0: none, 4: all
		content := f.mixed(c.read(database+suffix), func(int64) bool { return r.IntN(4) < share })
		require.NoError(c.t, os.WriteFile(after+suffix, content, 0o600))
	}
	return raw
}

// model is what a store must have, and what it may have in addition.
type model struct{ acknowledged, inDoubt map[string]string }

func (m *model) commit(s *sqldb.Store, r *rand.Rand, n int) error {
	b, after := s.BeginBatchWrite(), maps.Clone(m.acknowledged)
	for _, i := range r.Perm(300)[:1+r.IntN(6)] {
		key, value := strconv.Itoa(i), fmt.Sprintf("%d %s", n, bytes.Repeat([]byte{'v'}, r.IntN(6000)))
		if r.IntN(4) == 0 {
			b.Del([]byte(key))
			delete(after, key)
		} else {
			b.Put([]byte(key), []byte(value))
			after[key] = value
		}
	}
	err := b.Commit(context.Background())
	switch {
	case err == nil:
		m.acknowledged, m.inDoubt = after, nil
	case errors.Is(err, sqlstore.ErrUncertain):
		m.inDoubt = after
	}
	return err
}

func (m *model) check(t *testing.T, found map[string]string, where string) {
	t.Helper()
	if !maps.Equal(found, m.acknowledged) && (m.inDoubt == nil || !maps.Equal(found, m.inDoubt)) {
		t.Fatalf("%s: the store has %d rows, and not what was acknowledged, %d rows", where, len(found), len(m.acknowledged))
	}
}

// TestFailedFlushEndsTheProcess: and the next one has all that was acknowledged, whatever power it has.
func TestFailedFlushEndsTheProcess(t *testing.T) {
	commits := 0
	fill := func(s *sqldb.Store, m *model, n int) error {
		for range n {
			commits++
			if err := m.commit(s, rand.New(rand.NewPCG(uint64(commits), 0)), commits); err != nil {
				return err
			}
		}
		return nil
	}
	for _, c := range []struct {
		name   string
		suffix string // of the file
		fresh  bool   // the log was begun by this process, and has not been flushed
		reader bool   // at the commits before
		run    func(t *testing.T, s *sqldb.Store, m *model) error
	}{
		{name: "commit", suffix: logSuffix, run: func(t *testing.T, s *sqldb.Store, m *model) error { return fill(s, m, 1) }},
		{name: "first commit", suffix: logSuffix, fresh: true,
			run: func(t *testing.T, s *sqldb.Store, m *model) error { return fill(s, m, 1) }},
		{name: "checkpoint", run: func(t *testing.T, s *sqldb.Store, m *model) error { return fill(s, m, 100) }},
		{name: "checkpoint after a reader", reader: true,
			run: func(t *testing.T, s *sqldb.Store, m *model) error { return fill(s, m, 100) }},
		{name: "defragmentation",
			run: func(t *testing.T, s *sqldb.Store, _ *model) error { return s.Defragment(t.Context()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cache, raw, m := simulatePageCache(t), newURL(t), &model{acknowledged: map[string]string{}}
			path := parse(t, raw).Path
			s := openURL(t, raw, sqlstore.Options{})
			if c.reader {
				tx := beginRead(t, s)
				require.NoError(t, fill(s, m, 40))
				require.NoError(t, tx.Rollback())
			} else {
				require.NoError(t, fill(s, m, 3))
			}
			if c.fresh {
				require.NoError(t, s.Close())
				s = openURL(t, raw, sqlstore.Options{})
			}
			cache.fail = func(flushed string) bool { return flushed == path+c.suffix }
			err := c.run(t, s, m)
			require.True(t, cache.dead, "%v", err)
			require.NoError(t, s.Close())
			cache.dead, cache.fail = false, func(string) bool { return false }
			s = openURL(t, raw, sqlstore.Options{})
			m.acknowledged, m.inDoubt = rows(t, s), nil
			for seed := range uint64(5) {
				lost := openURL(t, cache.losePower(path, rand.New(rand.NewPCG(seed, 0))), sqlstore.Options{})
				m.check(t, rows(t, lost), "after a loss of power")
				require.NoError(t, lost.Close())
			}
			require.NoError(t, s.Close())
		})
	}
}

var powerLosses = flag.Int("power-losses", 100, "how many moments TestPowerLoss looks at")

// TestPowerLoss commits, reads, fails flushes, ends the process cleanly and otherwise, and starts it again, at random.
// It looks at what may be on disk at many moments.
func TestPowerLoss(t *testing.T) {
	losses := *powerLosses
	happened := map[string]int{}
	for seed := uint64(0); losses > 0 && !t.Failed(); seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			losses -= losePower(t, rand.New(rand.NewPCG(seed, 0)), happened)
		})
	}
	t.Log(happened)
}

// losePower returns at how many moments it looked.
func losePower(t *testing.T, r *rand.Rand, happened map[string]int) (losses int) {
	c, raw := simulatePageCache(t), newURL(t)
	path, m := parse(t, raw).Path, &model{acknowledged: map[string]string{}}
	failing := false
	c.fail = func(flushed string) bool { return failing && flushed[:len(path)] == path && r.IntN(60) == 0 }
	var s *sqldb.Store
	start := func() {
		c.dead, failing = false, false
		s = openURL(t, raw, sqlstore.Options{})
		found := rows(t, s)
		m.check(t, found, "after a start")
		m.acknowledged, m.inDoubt = found, nil // it is served now
		failing = true
	}
	var reader *sql.Tx
	read := func(begin bool) {
		switch {
		case begin && reader == nil:
			reader = beginRead(t, s)
		case !begin && reader != nil:
			require.NoError(t, reader.Rollback())
			reader = nil
		}
	}
	restart := func(why string) {
		happened[why]++
		read(false)
		require.NoError(t, s.Close())
		if why == "stopped" {
			c.changed(path+logSuffix, 0, logHeader)
		}
		start()
	}
	start()
	for n := range 400 {
		switch k := r.IntN(40); {
		case k < 3:
			read(true)
		case k < 5:
			read(false)
		case k == 5 && n%4 == 0:
			c.dead = true
			restart("killed")
		case k == 6 && n%4 == 0:
			restart("stopped")
		case k == 7 || k == 8 && reader != nil:
			losses++
			failing = false
			crashed := openURL(t, c.losePower(path, r), sqlstore.Options{})
			m.check(t, rows(t, crashed), fmt.Sprintf("power lost after commit %d", n))
			require.NoError(t, crashed.Close())
			failing = true
		case k == 9: // as checkpointBesideCommits does
			happened["moved beside commits"]++
			_, err := s.Database().Read().Exec(moveFrames)
			exitIfFlushFailed(slog.Default(), path, err)
		}
		if c.dead {
			restart("flush failed")
		}
		err := m.commit(s, r, n)
		if reader != nil {
			happened["commits beside a reader"]++
		}
		if c.dead {
			restart("flush failed")
		} else {
			require.NoError(t, err)
		}
	}
	failing = false
	read(false)
	require.NoError(t, s.Close())
	return losses
}
