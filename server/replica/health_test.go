package replica

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// However often it is asked, a node does not write more than it must to know.
func TestWritableSharesProbes(t *testing.T) {
	store := newStore(t)
	b := open(t, store, nil)
	tried := func() []byte {
		t.Helper()
		if err := b.Writable(t.Context()); err != nil {
			t.Fatal(err)
		}
		v, err := store.Get(t.Context(), coder.ProbeKey())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	tried()
	move := func(by time.Duration) {
		b.probe.mu.Lock()
		defer b.probe.mu.Unlock()
		b.probe.at = b.probe.at.Add(by)
	}
	move(time.Hour) // the test may take longer than the interval
	mark := store.BeginBatchWrite()
	mark.Put(coder.ProbeKey(), []byte("mark"))
	if err := mark.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if string(tried()) != "mark" {
		t.Error("the row was written again at once")
	}
	move(-time.Hour - probeInterval)
	probed := b.probe.at
	if string(tried()) != "mark" {
		t.Error("the row was written again within a minute")
	}
	if !b.probe.at.After(probed) {
		t.Error("a probe of a second ago counts")
	}
	rewind := func() {
		b.probe.mu.Lock()
		defer b.probe.mu.Unlock()
		b.probe.at, b.probe.written = time.Time{}, b.probe.written.Add(-probeCommit)
	}
	rewind()
	if string(tried()) == "mark" {
		t.Error("the row was not written for more than a minute")
	}
}

// TestFailedProbesWrite: whether the database can commit again is known after a commit only.
func TestFailedProbesWrite(t *testing.T) {
	store := &unwritable{Store: newStore(t)}
	b := open(t, store, nil)
	probe := func() (commits int, err error) {
		before := store.puts.Load()
		b.probe.mu.Lock()
		b.probe.at = time.Time{}
		b.probe.mu.Unlock()
		err = b.Writable(t.Context())
		return int(store.puts.Load() - before), err
	}
	for i, want := range []struct {
		err    error
		writes int
	}{{nil, 1}, {nil, 0}, {sqlstore.ErrUnavailable, 0}, {sqlstore.ErrUnavailable, 1}, {nil, 1}, {nil, 0}} {
		store.fail.Store(want.err != nil)
		if writes, err := probe(); writes != want.writes || !errors.Is(err, want.err) {
			t.Errorf("probe %d: %d writes, error %v; want %d, %v", i, writes, err, want.writes, want.err)
		}
	}
}

// unwritable is a store whose commits of the probe row can fail. It counts those that write it in any case.
type unwritable struct {
	sqlstore.Store
	fail atomic.Bool
	puts atomic.Int64
}

func (s *unwritable) BeginBatchWrite() sqlstore.BatchWrite {
	return &unwritableBatch{BatchWrite: s.Store.BeginBatchWrite(), s: s}
}

type unwritableBatch struct {
	sqlstore.BatchWrite
	s     *unwritable
	probe bool
}

func (f *unwritableBatch) Put(key, val []byte) {
	if bytes.Equal(key, coder.ProbeKey()) {
		f.probe = true
		f.s.puts.Add(1)
	}
	f.BatchWrite.Put(key, val)
}

func (f *unwritableBatch) PutIfNotExist(key, val []byte) {
	f.probe = bytes.Equal(key, coder.ProbeKey())
	f.BatchWrite.PutIfNotExist(key, val)
}

func (f *unwritableBatch) Commit(ctx context.Context) error {
	if f.probe && f.s.fail.Load() {
		return sqlstore.ErrUnavailable
	}
	return f.BatchWrite.Commit(ctx)
}

func TestStoppedNodeReportsCauseAndWritesNothing(t *testing.T) {
	store := newStore(t)
	b := open(t, store, nil)
	if err := errors.Join(b.Stopped(), b.Fed()); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("the cause")
	b.StopServing(cause)
	for name, err := range map[string]error{"Stopped": b.Stopped(), "Fed": b.Fed(), "Writable": b.Writable(t.Context())} {
		if !errors.Is(err, mvcc.ErrNotServing) || !errors.Is(err, cause) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if v, err := store.Get(t.Context(), coder.ProbeKey()); err == nil {
		t.Errorf("it wrote %x", v)
	}
}

func TestFollowerIsFedByHeartbeatsAndTheLog(t *testing.T) {
	b, err := OpenFollower(t.Context(), newStore(t), testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	defer closeReplica(t, b)
	for name, hear := range map[string]func() error{
		"a heartbeat":  func() error { return b.Apply(Update{Revision: b.Revision()}) },
		"the log":      func() error { return b.CatchUp(t.Context()) },
		"that it lags": func() error { _ = b.Apply(Update{Revision: b.Revision() + 5}); return nil },
	} {
		b.fed.Store(int64(time.Since(processStart) - feedSilence - time.Second))
		if b.Fed() == nil {
			t.Fatalf("%s: fed without anything", name)
		}
		heard := func() error {
			if err := hear(); err != nil {
				t.Fatal(err)
			}
			return b.Fed()
		}
		if name == "that it lags" {
			if heard() == nil {
				t.Errorf("%s: fed", name)
			}
			continue
		}
		eventually.Nil(t, eventually.Patience, func(context.Context) error { return heard() }) // it counts for seconds only
	}
}

// A node that has led knows the newest commit until its leadership ends, and has as long as a follower to hear of the
// next.
func TestNodeThatHasLedIsFed(t *testing.T) {
	for _, deposed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b, err := OpenFollower(t.Context(), newStore(t), exclusive(t, func(c *Config) { c.Leadership = &atLeader{} }))
			if err != nil {
				t.Fatal(err)
			}
			defer closeReplica(t, b)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			leading, ended := make(chan struct{}), make(chan error, 1)
			go func() { ended <- b.Lead(ctx, func(int64) { close(leading) }) }()
			<-leading
			time.Sleep(2 * feedSilence)
			if deposed {
				_ = b.leading.Load().End(fence.ErrDeposed)
			} else {
				cancel()
			}
			if err := <-ended; (err != nil) != deposed {
				t.Fatal(err)
			}
			if err := b.Fed(); err != nil {
				t.Errorf("deposed %v: %v", deposed, err)
			}
			time.Sleep(2 * feedSilence)
			if b.Fed() == nil {
				t.Errorf("deposed %v: fed without anything", deposed)
			}
		})
	}
}
