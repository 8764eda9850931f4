package mysql

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// TestTheHostThatTakesWritesIsUsed: of several hosts, whichever it is, and however
// the other one left.
func TestTheHostThatTakesWritesIsUsed(t *testing.T) {
	t.Parallel()
	servers := map[string]*enginetest.Server{"first": enginetest.StartServer(t), "second": enginetest.StartServer(t)}
	ctx := context.Background()
	for name, server := range servers {
		ordinaryUser(t, server.URL())
		migrate(t, server.URL())
		w, err := open(ctx, parse(t, server.URL()), sqlstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		b := w.BeginBatchWrite()
		b.Put([]byte("server"), []byte(name))
		if err := errors.Join(b.Commit(ctx), w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	readOnly := func(name, value string) {
		t.Helper()
		enginetest.Exec(t, servers[name].URL(), "SET GLOBAL read_only = "+value)
	}
	readOnly("first", "1")
	u := parse(t, "mysql://app:secret@"+parse(t, servers["first"].URL()).Address+","+parse(t,
		servers["second"].URL()).Address+"/sqlbrain?timeout=10s")
	s, err := open(ctx, u, sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	// reaches waits until commits and reads are answered by a server.
	reaches := func(name string) {
		t.Helper()
		limit, cancel := context.WithTimeout(ctx, eventually.Patience)
		defer cancel()
		for {
			b := s.BeginBatchWrite()
			b.Put([]byte("written"), []byte(name))
			err := b.Commit(limit)
			if err == nil {
				break
			}
			if limit.Err() != nil {
				t.Fatalf("no commit on the %s server: %v", name, err)
			}
			if !errors.Is(err, sqlstore.ErrUnavailable) && !errors.Is(err, sqlstore.ErrUncertain) {
				t.Fatal(err)
			}
		}
		for range 40 { // every connection there is
			value, err := s.Get(limit, []byte("server"))
			if err != nil || string(value) != name {
				t.Fatalf("reads are answered by the %q server, commits by the %s one: %v", value, name, err)
			}
		}
	}
	reaches("second")

	readOnly("second", "1")
	readOnly("first", "0")
	reaches("first")

	readOnly("second", "0")
	reaches("first") // where it is already
	servers["first"].Kill()
	reaches("second")

	servers["first"].Start()
	servers["second"].Pause()
	reaches("first")

	servers["second"].Resume()
	readOnly("second", "1")
	readOnly("first", "1")
	b := s.BeginBatchWrite()
	b.Put([]byte("refused"), []byte("x"))
	err = b.Commit(ctx)
	unavailable(t, "while none takes writes", err)
	for _, address := range u.Addresses() {
		if _, err := open(ctx, u, sqlstore.Options{}); !strings.Contains(err.Error(), address) {
			t.Errorf("%v does not name %s", err, address)
		}
	}
}
