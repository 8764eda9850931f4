package sqlstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
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
		w, err := sqlstore.Open(ctx, parse(t, server.URL()), sqlstore.Options{})
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
	u := parse(t, "mysql://app:secret@"+parse(t, servers["first"].URL()).Address+","+parse(t, servers["second"].URL()).Address+"/sqlbrain?timeout=20s")
	s, err := sqlstore.Open(ctx, u, sqlstore.Options{})
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
		limit, cancel := context.WithTimeout(ctx, 30*time.Second)
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
		if _, err := sqlstore.Open(ctx, u, sqlstore.Options{}); !strings.Contains(err.Error(), address) {
			t.Errorf("%v does not name %s", err, address)
		}
	}
}

func TestSeveralHostsInAURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"mysql://u:p@a,b:3307,[::1]/n":   "a:3306 b:3307 [::1]:3306",
		"tidb://u:p,@a:1,b,c:2?tls=true": "",
		"tidb://u:p,@a:1,b,c:2/n":        "a:1 b:4000 c:2",
		"mysql://u:p@a/n":                "a:3306",
	} {
		u, err := sqlstore.ParseURL(raw)
		if want == "" {
			if err == nil {
				t.Errorf("%s has no database, and is taken", raw)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if got := strings.Join(u.Addresses(), " "); got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
		if raw == "tidb://u:p,@a:1,b,c:2/n" {
			other, err := sqlstore.ParseURL("tidb://u:p,@b,c:2,a:1/n")
			if err != nil || other.InOrder().String() != u.InOrder().String() || other.String() == u.String() {
				t.Errorf("%s in order is %s, and %s %s (%v)", raw, u.InOrder(), other, other.InOrder(), err)
			}
		}
		if again, err := sqlstore.ParseURL(u.String()); err != nil || again.String() != u.String() {
			t.Errorf("%s prints as %s, which parses as %v, %v", raw, u, again, err)
		}
	}
	for raw, says := range map[string]string{
		"mysql://u:s3cret@a,b:0/n":      "port",
		"mysql://u:s3cret@a,,b/n":       "host",
		"mysql://u:s3cret@a,/n":         "host",
		"mysql://u:s3cret@,a/n":         "host",
		"mysql://u:s3cret@a,b:3306,b/n": "twice",
		"mysql://u:s3cret@a,b c/n":      "hosts",
	} {
		_, err := sqlstore.ParseURL(raw)
		switch {
		case err == nil && says != "":
			t.Errorf("%s is taken", raw)
		case err != nil && (!strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret")):
			t.Errorf("%s: %v, which does not say %q, or shows the password", raw, err, says)
		}
	}
}
