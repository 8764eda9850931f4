package quota

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func newProbe(t *testing.T, store sqlstore.Store) *Probe {
	p := NewProbe(store, newSpace(t, store, newAlarms(store), 0), func() error { return nil }, time.Minute)
	t.Cleanup(func() { p.Close(errors.New("closed")) })
	return p
}

// However often it is asked, a node does not write more than it must to know.
func TestWritableSharesProbes(t *testing.T) {
	store := newTable(t)
	p := newProbe(t, store)
	tried := func() []byte {
		t.Helper()
		if err := p.Writable(t.Context()); err != nil {
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
		p.mu.Lock()
		defer p.mu.Unlock()
		p.at = p.at.Add(by)
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
	probed := p.at
	if string(tried()) != "mark" {
		t.Error("the row was written again within a minute")
	}
	if !p.at.After(probed) {
		t.Error("a probe of a second ago counts")
	}
	rewind := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.at, p.written = time.Time{}, p.written.Add(-probeCommit)
	}
	rewind()
	if string(tried()) == "mark" {
		t.Error("the row was not written for more than a minute")
	}
}

// TestAFailureOutlivesASuccess: a caller that came before the success may have asked once more.
func TestAFailureOutlivesASuccess(t *testing.T) {
	store := &unwritable{Store: newTable(t)}
	p := newProbe(t, store)
	if err := p.Writable(t.Context()); err != nil {
		t.Fatal(err)
	}
	store.fail.Store(true)
	if err := p.write(t.Context()); err == nil {
		t.Fatal("the database took a write")
	}
	if p.fresh() {
		t.Error("the success before counts")
	}
}

// TestFailedProbesWrite: whether the database can commit again is known after a commit only.
func TestFailedProbesWrite(t *testing.T) {
	store := &unwritable{Store: newTable(t)}
	p := newProbe(t, store)
	probe := func() (commits int, err error) {
		before := store.puts.Load()
		p.mu.Lock()
		p.at = time.Time{}
		p.mu.Unlock()
		err = p.Writable(t.Context())
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
