package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// calls is every call that takes a context.
func calls(s sqlstore.Store) map[string]func(context.Context) error {
	lo, hi := allIndexRows()
	return map[string]func(context.Context) error{
		"GetPartitions": func(ctx context.Context) error { _, err := s.GetPartitions(ctx, lo, hi); return err },
		"Get":           func(ctx context.Context) error { _, err := s.Get(ctx, []byte("a")); return err },
		"MultiGet":      func(ctx context.Context) error { _, err := s.MultiGet(ctx, [][]byte{[]byte("a")}); return err },
		"Iter": func(ctx context.Context) error {
			_, found, err := sqlstore.First(s.Iter(ctx, whole()))
			if found {
				return errors.New("the iteration continued")
			}
			return err
		},
		"Commit": func(ctx context.Context) error {
			b := s.BeginBatchWrite()
			b.Put([]byte("written"), []byte("too late"))
			return b.Commit(ctx)
		},
		"Commit of versioned rows": func(ctx context.Context) error {
			b := s.BeginBatchWrite()
			b.CASOrPut(versionedKey("written"), versioned(2, 1, ""), versioned(1, 0, ""))
			return b.Commit(ctx)
		},
		"Timestamp": func(ctx context.Context) error { _, err := s.Timestamp(ctx); return err },
		"List": func(ctx context.Context) error {
			_, _, err := s.List(ctx, sqlstore.ListQuery{Start: lo, End: hi})
			return err
		},
		"Count":   func(ctx context.Context) error { _, _, err := s.Count(ctx, lo, hi, 1); return err },
		"SeekNth": func(ctx context.Context) error { _, err := s.SeekNth(ctx, lo, hi, 1); return err },
		"LatestAtOrBefore": func(ctx context.Context) error {
			_, err := s.LatestAtOrBefore(ctx, []sqlstore.Partition{{Start: lo, End: hi}})
			return err
		},
		"Size":       func(ctx context.Context) error { _, _, err := s.Size(ctx); return err },
		"FreeSpace":  func(ctx context.Context) error { _, _, err := s.FreeSpace(ctx); return err },
		"Defragment": s.Defragment,
	}
}

func testContext(t *testing.T, s sqlstore.Store) {
	commit(t, s, func(b sqlstore.BatchWrite) { b.Put([]byte("a"), []byte("1")) })
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	expired, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancel()
	for name, call := range calls(s) {
		if err := call(canceled); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a canceled context: %v", name, err)
		}
		if err := call(expired); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s with an expired context: %v", name, err)
		}
		if err := call(canceled); errors.Is(err, sqlstore.ErrUncertain) {
			t.Errorf("%s that was never started is uncertain: %v", name, err)
		}
	}
	sameRows(t, "rows", all(t, s, whole()), []sqlstore.Row{{Key: []byte("a"), Value: []byte("1")}})

	// A context that ends between pages ends the iteration.
	commit(t, s, func(b sqlstore.BatchWrite) {
		for i := range 2000 {
			b.Put(fmt.Appendf(nil, "%04d", i), bytes.Repeat([]byte("x"), 100))
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := whole()
	r.PageBytes = 1000
	n, errs := 0, []error(nil)
	for _, err := range s.Iter(ctx, r) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if n++; n == 10 {
			cancel()
		}
	}
	if len(errs) != 1 || !errors.Is(errs[0], context.Canceled) || n >= 2000 {
		t.Errorf("after %d rows: %v, want one error, which is the context's", n, errs)
	}
	// The store still works.
	mustHold(t, s, []byte("a"), []byte("1"))
	commit(t, s, func(b sqlstore.BatchWrite) { b.Put([]byte("a"), []byte("2")) })
}

func testClose(t *testing.T, s sqlstore.Store) {
	commit(t, s, func(b sqlstore.BatchWrite) {
		for i := range 1000 {
			b.Put(fmt.Appendf(nil, "%04d", i), []byte("1"))
		}
	})
	r := whole()
	r.PageBytes = 10
	n, errs := 0, []error(nil)
	for _, err := range s.Iter(context.Background(), r) {
		if n++; n > 1 {
			errs = append(errs, err)
			continue
		}
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, s.Close(), "Close")
		}
	}
	if len(errs) == 0 || !errors.Is(errs[len(errs)-1], sqlstore.ErrClosed) {
		t.Errorf("Iter across Close: %v", errs)
	}
	for name, call := range calls(s) {
		if err := call(context.Background()); !errors.Is(err, sqlstore.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}

func testPartitions(t *testing.T, s sqlstore.Store) {
	start, end := []byte("a"), []byte("z")
	parts, err := s.GetPartitions(context.Background(), start, end)
	if err != nil || len(parts) == 0 {
		t.Fatalf("%d partitions, %v", len(parts), err)
	}
	at := start
	for _, p := range parts {
		if !bytes.Equal(p.Start, at) || bytes.Compare(p.Start, p.End) >= 0 {
			t.Fatalf("partitions %q leave a gap or overlap", parts)
		}
		at = p.End
	}
	if !bytes.Equal(at, end) {
		t.Fatalf("partitions %q end early", parts)
	}
}

func testSize(t *testing.T, s sqlstore.Store) {
	ctx := context.Background()
	key := func(i int) []byte { return fmt.Appendf(nil, "%04d", i) }
	commit(t, s, func(b sqlstore.BatchWrite) {
		for i := range 400 {
			b.Put(key(i), bytes.Repeat([]byte("x"), 4000))
		}
	})
	check := func() {
		t.Helper()
		total, inUse, err := s.Size(ctx)
		if err != nil || total <= 0 || inUse <= 0 || inUse > total {
			t.Fatalf("Size = %d, %d, %v", total, inUse, err)
		}
	}
	check()
	commit(t, s, func(b sqlstore.BatchWrite) {
		for i := range 300 {
			b.Del(key(i))
		}
	})
	// Reads and commits continue during it.
	defragmented := make(chan error, 1)
	go func() { defragmented <- s.Defragment(ctx) }()
	for i := range 20 {
		commit(t, s, func(b sqlstore.BatchWrite) { b.Put(key(i), []byte("during")) })
		mustHold(t, s, key(350), bytes.Repeat([]byte("x"), 4000))
	}
	require.NoError(t, <-defragmented, "Defragment")
	check()
	if rows := all(t, s, whole()); len(rows) != 120 {
		t.Fatalf("%d rows, want 120", len(rows))
	}
}

func testTimestamp(t *testing.T, s sqlstore.Store) {
	at, err := s.Timestamp(context.Background())
	require.NoError(t, err)
	if at.Before(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Fatalf("the engine's clock says %v", at)
	}
}
