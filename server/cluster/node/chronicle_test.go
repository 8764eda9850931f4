package node

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/watch"
)

// chronicle is what a watcher of all keys from the first revision on is told by a
// node. It is checked as it comes: whole revisions, every one of them, once, in
// order, each event with the version it replaced.
type chronicle struct {
	t    testing.TB
	name string
	stop context.CancelFunc
	done chan struct{}

	mu     sync.Mutex
	rev    int64                    // the newest it knows of
	now    map[string]*coder.Record // the keys at rev
	values map[int64]string         // by revision, the first value put
	wrong  error
}

func watchAll(t testing.TB, m *testNode) *chronicle {
	ctx, cancel := context.WithCancel(context.Background())
	c := &chronicle{
		t: t, name: m.name, stop: cancel, done: make(chan struct{}),
		rev: 1, now: map[string]*coder.Record{}, values: map[int64]string{},
	}
	s := m.Replica().Hub.NewStream()
	s.Create(watch.Permitted, watch.CreateRequest{Key: []byte{0}, End: []byte{0}, StartRevision: 2, PrevKV: true})
	go func() {
		defer close(c.done)
		defer s.Close()
		for {
			r, err := s.Next(ctx)
			if err != nil {
				return // stopped, or the node is
			}
			if err := c.apply(r); err != nil {
				c.mu.Lock()
				c.wrong = err
				c.mu.Unlock()
				return
			}
		}
	}()
	t.Cleanup(c.end)
	return c
}

func (c *chronicle) end() {
	c.stop()
	<-c.done
}

func (c *chronicle) apply(r *watch.Response) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Canceled {
		return fmt.Errorf("cancelled: %+v", r)
	}
	for i, e := range r.Events {
		rev, sub := e.Record.ModRevision, e.Record.Sub
		switch {
		case rev == c.rev+1 && sub == 0:
		case i > 0 && rev == c.rev && sub == r.Events[i-1].Record.Sub+1:
		default:
			return fmt.Errorf("an event of revision %d.%d behind revision %d", rev, sub, c.rev)
		}
		c.rev = rev
		key := string(e.Record.Key)
		old, prev := c.now[key], r.Prev[i]
		if (old == nil) != (prev == nil) || old != nil &&
			(old.ModRevision != prev.ModRevision || !bytes.Equal(old.Value, prev.Value)) {
			return fmt.Errorf("revision %d replaced %+v, the event says %+v", rev, old, prev)
		}
		if e.Type == watch.Delete {
			delete(c.now, key)
			continue
		}
		c.now[key] = e.Record
		if sub == 0 {
			c.values[rev] = string(e.Record.Value)
		}
	}
	return nil
}

// reach waits until the watcher was told of a revision.
func (c *chronicle) reach(rev int64) {
	c.t.Helper()
	eventually.True(c.t, fmt.Sprintf("%s's watcher to be told of revision %d", c.name, rev), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		require.NoError(c.t, c.wrong, "%s's watcher", c.name)
		return c.rev >= rev
	})
}

// load writes through whoever leads, one write after the other, until stop.
type load struct {
	g    *group
	quit context.CancelFunc
	done chan struct{}

	mu    sync.Mutex
	acked map[int64]string // by revision, the value
}

func (g *group) load() *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{g: g, quit: cancel, done: make(chan struct{}), acked: map[int64]string{}}
	go func() {
		defer close(l.done)
		pace := time.NewTicker(2 * time.Millisecond)
		defer pace.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			<-pace.C
			l.write(ctx, i)
		}
	}()
	g.t.Cleanup(func() { cancel(); <-l.done })
	return l
}

// write makes one write at every node that says it leads; not all of them do.
func (l *load) write(ctx context.Context, i int) {
	for _, m := range l.g.all() {
		if !m.Replica().Leading() {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		value := fmt.Sprintf("%d by %s", i, m.name)
		txn := put(fmt.Sprint("k", i%3), value)
		switch i % 5 {
		case 1:
			txn.Then = append(txn.Then, put("both", value).Then...)
		case 3:
			txn.Then = append(txn.Then, mvcc.Op{Delete: &mvcc.DeleteRequest{KeyRange: mvcc.KeyRange{Key: []byte("both")}}})
		}
		r, err := m.Replica().Txn(ctx, auth.System, txn, true)
		cancel()
		if err == nil {
			l.mu.Lock()
			l.acked[r.Revision] = value
			l.mu.Unlock()
		}
	}
}

// more waits until n more writes were acknowledged.
func (l *load) more(n int) {
	l.g.t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.acked)
	}
	want := count() + n
	eventually.True(l.g.t, "writes to be acknowledged", func() bool { return count() >= want })
}

// check requires that every watcher is told of every write that was acknowledged
// so far.
func (l *load) check(watchers ...*chronicle) {
	l.g.t.Helper()
	l.mu.Lock()
	acked := maps.Clone(l.acked)
	l.mu.Unlock()
	for _, c := range watchers {
		c.reach(slices.Max(slices.Collect(maps.Keys(acked))))
		c.mu.Lock()
		for rev, value := range acked {
			require.Equal(l.g.t, value, c.values[rev], "revision %d at %s", rev, c.name)
		}
		c.mu.Unlock()
	}
}

// newest returns the newest revision that was acknowledged.
func (l *load) newest() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Max(slices.Collect(maps.Keys(l.acked)))
}

// stop ends the load.
func (l *load) stop(watchers ...*chronicle) {
	l.g.t.Helper()
	l.quit()
	<-l.done
	l.check(watchers...)
}
