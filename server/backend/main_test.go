package backend

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a leader over store that is closed with the test. It takes the
// store for its own, and so waits for nobody, unless change says otherwise.
func open(t testing.TB, store sqlstore.Store, change func(*Config)) *Backend {
	t.Helper()
	cfg := Config{Logger: testLogger(t), Exclusive: true}
	if change != nil {
		change(&cfg)
	}
	b, err := Open(t.Context(), store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeBackend(t, b) })
	return b
}

// sharedStore lets other backends use the store.
func sharedStore(c *Config) { c.Exclusive = false }

func testLogger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func closeBackend(t testing.TB, b *Backend) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.Close(ctx); err != nil && !errors.Is(err, ErrNotServing) {
		t.Error(err)
	}
}

func newStore(t testing.TB) sqlstore.Store {
	t.Helper()
	s := memstore.New()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func put(key, value string) *Txn {
	return &Txn{Then: []Op{{Put: &PutRequest{Key: []byte(key), Value: []byte(value)}}}}
}

func del(key string) *Txn {
	return &Txn{Then: []Op{{Delete: &DeleteRequest{KeyRange: KeyRange{Key: []byte(key)}}}}}
}

func mustTxn(t testing.TB, b *Backend, txn *Txn) *TxnResult {
	t.Helper()
	res, err := b.Txn(t.Context(), txn, true)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func mustRange(t testing.TB, b *Backend, r *RangeRequest) *RangeResult {
	t.Helper()
	res, err := b.Range(t.Context(), r, true)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func all() KeyRange { return KeyRange{Key: []byte{0}, End: []byte{0}} }
