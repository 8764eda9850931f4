package node

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
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

	mu    sync.Mutex
	rev   int64                    // the newest it knows of
	now   map[string]*coder.Record // the keys at rev
	wrong error
}

func watchAll(t testing.TB, m *testNode) *chronicle {
	ctx, cancel := context.WithCancel(context.Background())
	c := &chronicle{
		t: t, name: m.name, stop: cancel, done: make(chan struct{}),
		rev: 1, now: map[string]*coder.Record{},
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
