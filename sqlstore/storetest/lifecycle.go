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
		"Lengths": func(ctx context.Context) error { _, err := s.Lengths(ctx, [][]byte{lo}); return err },
		"Measure": func(ctx context.Context) error {
			_, err := s.Measure(ctx, sqlstore.MeasureQuery{Start: lo, End: hi})
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
		err := call(canceled)
		require.ErrorIs(t, err, context.Canceled, name)
		require.NotErrorIs(t, err, sqlstore.ErrUncertain, "%s was never started", name)
		require.ErrorIs(t, call(expired), context.DeadlineExceeded, name)
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
	require.Less(t, n, 2000)
	require.Len(t, errs, 1)
	require.ErrorIs(t, errs[0], context.Canceled)
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
	require.ErrorIs(t, errors.Join(errs...), sqlstore.ErrClosed, "Iter across Close")
	for name, call := range calls(s) {
		require.ErrorIs(t, call(context.Background()), sqlstore.ErrClosed, "%s after Close", name)
	}
}

func testPartitions(t *testing.T, s sqlstore.Store) {
	start, end := []byte("a"), []byte("z")
	parts, err := s.GetPartitions(context.Background(), start, end)
	require.NoError(t, err)
	at := start
	for _, p := range parts {
		require.Equal(t, at, p.Start, "partitions %q leave a gap or overlap", parts)
		require.Negative(t, bytes.Compare(p.Start, p.End))
		at = p.End
	}
	require.Equal(t, end, at)
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
		require.NoError(t, err)
		require.Positive(t, inUse)
		if total != 0 { // the engine has a file
			require.LessOrEqual(t, inUse, total)
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
	require.Len(t, all(t, s, whole()), 120)
}

func testTimestamp(t *testing.T, s sqlstore.Store) {
	at, err := s.Timestamp(context.Background())
	require.NoError(t, err)
	require.True(t, at.After(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)), "the engine's clock says %v", at)
}
