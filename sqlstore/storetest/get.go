package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func testGet(t *testing.T, s sqlstore.Store) {
	ctx := context.Background()
	if _, err := s.Get(ctx, []byte("none")); !errors.Is(err, sqlstore.ErrKeyNotFound) {
		t.Fatalf("Get of a missing key: %v", err)
	}
	commit(t, s, func(b sqlstore.BatchWrite) {
		b.Put([]byte("a"), []byte("1"))
		b.Put([]byte("empty"), []byte{})
	})
	mustHold(t, s, []byte("a"), []byte("1"))
	mustHold(t, s, []byte("empty"), []byte{})
	for _, keys := range [][][]byte{nil, {}} {
		if values, err := s.MultiGet(ctx, keys); err != nil || len(values) != 0 {
			t.Fatalf("MultiGet of nothing = %q, %v", values, err)
		}
	}
	values, err := s.MultiGet(ctx, [][]byte{[]byte("b"), []byte("a"), []byte("empty"), []byte("a"), []byte("A")})
	if err != nil || len(values) != 5 {
		t.Fatalf("MultiGet = %q, %v", values, err)
	}
	for i, want := range [][]byte{nil, []byte("1"), {}, []byte("1"), nil} {
		if !bytes.Equal(values[i], want) || (values[i] == nil) != (want == nil) {
			t.Errorf("value %d is %q, want %q", i, values[i], want)
		}
	}
}

func testMultiGetMany(t *testing.T, s sqlstore.Store) {
	const n = 6000
	commit(t, s, func(b sqlstore.BatchWrite) {
		for i := 0; i < n; i += 2 {
			b.PutIfNotExist(fmt.Appendf(nil, "%06d", i), fmt.Appendf(nil, "v%d", i))
		}
	})
	rnd := rand.New(rand.NewPCG(3, 3))
	for _, size := range []int{1, 499, 500, 501, 1000, n} {
		keys, ids := make([][]byte, size), make([]int, size)
		for i := range keys {
			ids[i] = rnd.IntN(n) // with repetitions
			keys[i] = fmt.Appendf(nil, "%06d", ids[i])
		}
		values, err := s.MultiGet(context.Background(), keys)
		if err != nil || len(values) != size {
			t.Fatalf("MultiGet of %d: %d values, %v", size, len(values), err)
		}
		for i, id := range ids {
			var want []byte
			if id%2 == 0 {
				want = fmt.Appendf(nil, "v%d", id)
			}
			if !bytes.Equal(values[i], want) {
				t.Fatalf("MultiGet of %d: %q holds %q, want %q", size, keys[i], values[i], want)
			}
		}
	}
}

// whileWriting runs read over and over while one goroutine commits write(b, i)
// for i = 1, 2, … to times.
func whileWriting(t *testing.T, s sqlstore.Store, times int, write func(sqlstore.BatchWrite, int), read func() error) {
	t.Helper()
	done := make(chan struct{})
	var failure error
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for i := 1; i <= times && failure == nil; i++ {
			failure = tryCommit(s, func(b sqlstore.BatchWrite) { write(b, i) })
		}
	})
	defer func() {
		wg.Wait()
		if failure != nil {
			t.Errorf("Commit: %v", failure)
		}
	}()
	for {
		if err := read(); err != nil {
			t.Error(err)
			<-done
			return
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

func testMultiGetSnapshot(t *testing.T, s sqlstore.Store) {
	const n = 1800
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "%05d", i)
	}
	first, last := keys[0], keys[n-1]
	commit(t, s, func(b sqlstore.BatchWrite) {
		for _, key := range keys {
			b.Put(key, []byte("0"))
		}
	})
	whileWriting(t, s, 100, func(b sqlstore.BatchWrite, i int) {
		b.Put(first, fmt.Append(nil, i))
		b.Put(last, fmt.Append(nil, i))
	}, func() error {
		values, err := s.MultiGet(context.Background(), keys)
		if err != nil {
			return err
		}
		if !bytes.Equal(values[0], values[n-1]) {
			return fmt.Errorf("one MultiGet saw %s and %s of rows that always change together", values[0], values[n-1])
		}
		return nil
	})
}
