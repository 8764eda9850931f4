package replica

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

func TestMain(m *testing.M) { eventually.NoLeaks(enginetest.Main(m)) }

// open returns a leader over store that is closed with the test. It takes the
// store for its own, and so waits for nobody, unless change says otherwise.
func open(t testing.TB, store sqlstore.Store, change func(*Config)) *Replica {
	t.Helper()
	cfg := exclusive(t)
	if change != nil {
		change(&cfg)
	}
	b, err := OpenLeader(t.Context(), store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeReplica(t, b) })
	return b
}

// openFollower returns a replica that does not lead, and is closed with the test.
func openFollower(t testing.TB, store sqlstore.Store, cfg Config) *Replica {
	t.Helper()
	b, err := OpenFollower(t.Context(), store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeReplica(t, b) })
	return b
}

// testConfig returns the default configuration with the test's log.
func testConfig(t testing.TB, change ...func(*Config)) Config {
	cfg := DefaultConfig()
	cfg.Logger = testLogger(t)
	cfg.RequestTimeout = eventually.Deadline // for a busy machine
	for _, f := range change {
		f(&cfg)
	}
	return cfg
}

// exclusive is testConfig for a replica that has its store to itself.
func exclusive(t testing.TB, change ...func(*Config)) Config {
	cfg := testConfig(t, change...)
	cfg.Exclusive = true
	return cfg
}

// sharedStore lets other backends use the store.
func sharedStore(c *Config) { c.Exclusive = false }

func testLogger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func closeReplica(t testing.TB, b *Replica) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Deadline)
	defer cancel()
	if err := b.Close(ctx); err != nil && !errors.Is(err, mvcc.ErrNotServing) {
		t.Error(err)
	}
}

func newStore(t testing.TB) sqlstore.Store {
	t.Helper()
	s := memstore.New()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func put(key, value string) *mvcc.Txn {
	return &mvcc.Txn{Then: []mvcc.Op{{Put: &mvcc.PutRequest{Key: []byte(key), Value: []byte(value)}}}}
}

// create returns the transaction that kube-apiserver creates objects with: its
// failure branch says what is there.
func create(key, value string) *mvcc.Txn {
	return &mvcc.Txn{
		Compares: []mvcc.Compare{{KeyRange: mvcc.KeyRange{Key: []byte(key)}, Target: mvcc.CompareMod,
			Result: mvcc.CompareEqual}},
		Then: []mvcc.Op{{Put: &mvcc.PutRequest{Key: []byte(key), Value: []byte(value)}}},
		Else: []mvcc.Op{{Range: &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte(key)}}}},
	}
}

func del(key string) *mvcc.Txn {
	return &mvcc.Txn{Then: []mvcc.Op{{Delete: &mvcc.DeleteRequest{KeyRange: mvcc.KeyRange{Key: []byte(key)}}}}}
}

func mustTxn(t testing.TB, b *Replica, txn *mvcc.Txn) *mvcc.TxnResult {
	t.Helper()
	res, err := b.Txn(t.Context(), auth.System, txn, true)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func mustRange(t testing.TB, b *Replica, r *mvcc.RangeRequest) *mvcc.RangeResult {
	t.Helper()
	res, err := b.Reader.Range(t.Context(), auth.System, r, true)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func mustCompact(t testing.TB, b *Replica, rev int64, physical bool) {
	t.Helper()
	if _, err := b.Compact(t.Context(), auth.System, rev, physical); err != nil {
		t.Fatal(err)
	}
}

// lessor returns the lessor of b, which must lead.
func lessor(t testing.TB, b *Replica) *lease.Lessor {
	t.Helper()
	l, err := b.Lessor()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func all() mvcc.KeyRange { return mvcc.KeyRange{Key: []byte{0}, End: []byte{0}} }
