package replica

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/watch"
)

// expectContiguous reads one event for each revision in [from, to].
func expectContiguous(t *testing.T, stream *watch.Stream, from, to int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Deadline)
	defer cancel()
	last := make(map[string]*coder.Record)
	for next := from; next <= to; {
		resp, err := stream.Next(ctx)
		if err != nil {
			t.Fatalf("waiting for revision %d of %d: %v", next, to, err)
		}
		if resp.Canceled {
			t.Fatalf("cancelled: %+v", resp)
		}
		for i, e := range resp.Events {
			if e.Record.ModRevision != next {
				t.Fatalf("event of revision %d, want %d", e.Record.ModRevision, next)
			}
			k := string(e.Record.Key)
			if prev := resp.Prev[i]; prev != nil && last[k] != nil &&
				(prev.ModRevision != last[k].ModRevision || string(prev.Value) != string(last[k].Value)) {
				t.Fatalf("previous version of %s at %d is %s@%d, want %s@%d", k, next, prev.Value, prev.ModRevision, last[k].Value,
					last[k].ModRevision)
			} else if (prev == nil) != (last[k] == nil) {
				t.Fatalf("previous version of %s at %d: got %v, want %v", k, next, prev, last[k])
			}
			last[k] = e.Record
			next++
		}
	}
}

func TestDeposedLeaderCannotCommit(t *testing.T) {
	store := newStore(t)
	old := open(t, store, sharedStore)
	mustTxn(t, old, put("k", "1"))
	young := open(t, store, sharedStore)
	if old.Status().Term >= young.Status().Term {
		t.Fatalf("terms %d and %d", old.Status().Term, young.Status().Term)
	}
	if _, err := old.Txn(t.Context(), auth.System, put("k", "2"), true); !errors.Is(err, mvcc.ErrNotServing) ||
		!errors.Is(err, fence.ErrDeposed) {
		t.Fatalf("write on the deposed leader: %v", err)
	}
	if _, err := old.Reader.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: all()}, false); !errors.Is(err,
		mvcc.ErrNotServing) {
		t.Fatalf("read on the deposed leader: %v", err)
	}
	if res := mustTxn(t, young, put("k", "3")); res.Revision != 3 {
		t.Fatalf("the new leader's write got revision %d, want 3", res.Revision)
	}
}

// A leader whose clock is behind that of its predecessor warns of that, and continues at the time of the newest commit.
func TestSuccessorDoesNotCommitEarlier(t *testing.T) {
	store := newStore(t)
	ahead := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	mustTxn(t, open(t, store, func(c *Config) {
		c.Exclusive, c.CommitClock = false, func() time.Time { return ahead }
	}), put("k", "1"))
	var log bytes.Buffer
	young := open(t, store, func(c *Config) { c.Exclusive, c.Logger = false, slog.New(slog.NewTextHandler(&log, nil)) })
	revision := mustTxn(t, young, put("k", "2")).Revision
	got, err := young.history.CommitOf(t.Context(), revision)
	if err != nil || !got.At.Equal(ahead) {
		t.Errorf("revision %d: %+v, %v", revision, got, err)
	}
	closeReplica(t, young)
	if !strings.Contains(log.String(), "the newest commit is later than this host's clock") {
		t.Errorf("no warning:\n%s", log.String())
	}
}

// silent is a store that, while it is silent, answers no multi-get and no list.
type silent struct {
	sqlstore.Store
	on atomic.Bool
}

func (s *silent) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	if s.on.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.MultiGet(ctx, keys)
}

func (s *silent) List(ctx context.Context, q sqlstore.ListQuery) ([]sqlstore.ListRow, bool, error) {
	if s.on.Load() {
		<-ctx.Done()
		return nil, false, ctx.Err()
	}
	return s.Store.List(ctx, q)
}

func (s *silent) Lookup(ctx context.Context, keys [][]byte, maxBytes int) ([]sqlstore.ListRow, bool, error) {
	if s.on.Load() {
		<-ctx.Done()
		return nil, false, ctx.Err()
	}
	return s.Store.Lookup(ctx, keys, maxBytes)
}

func TestUnansweredReadDoesNotBlockWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &silent{Store: newStore(t)}
		b := open(t, store, func(c *Config) { c.Write.CommitTimeout = 500 * time.Millisecond })
		store.on.Store(true)
		for _, txn := range []*mvcc.Txn{put("k", "v"), {Then: []mvcc.Op{{Delete: &mvcc.DeleteRequest{KeyRange: all()}}}}} {
			if _, err := b.Txn(t.Context(), auth.System, txn, true); !errors.Is(err, mvcc.ErrTimeout) {
				t.Errorf("while the database is silent: %v", err)
			}
		}
		store.on.Store(false)
		if res := mustTxn(t, b, put("k", "v")); res.Revision != 2 {
			t.Errorf("the first write took revision %d", res.Revision)
		}
	})
}
