package storetest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func testGet(t *testing.T, s sqlstore.Store) {
	ctx := context.Background()
	mustHold(t, s, []byte("none"), nil)
	commit(t, s, func(b sqlstore.BatchWrite) {
		b.Put([]byte("a"), []byte("1"))
		b.Put([]byte("empty"), []byte{})
	})
	mustHold(t, s, []byte("a"), []byte("1"))
	mustHold(t, s, []byte("empty"), []byte{})
	for _, keys := range [][][]byte{nil, {}} {
		values, err := s.MultiGet(ctx, keys)
		require.NoError(t, err)
		require.Empty(t, values)
	}
	values, err := s.MultiGet(ctx, [][]byte{[]byte("b"), []byte("a"), []byte("empty"), []byte("a"), []byte("A")})
	require.NoError(t, err)
	require.Equal(t, [][]byte{nil, []byte("1"), {}, []byte("1"), nil}, values)
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
		keys, want := make([][]byte, size), make([][]byte, size)
		for i := range keys {
			id := rnd.IntN(n) // with repetitions
			if keys[i] = fmt.Appendf(nil, "%06d", id); id%2 == 0 {
				want[i] = fmt.Appendf(nil, "v%d", id)
			}
		}
		values, err := s.MultiGet(context.Background(), keys)
		require.NoError(t, err)
		require.Equal(t, want, values, "MultiGet of %d", size)
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
		require.NoError(t, failure, "Commit")
	}()
	for {
		require.NoError(t, read())
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
