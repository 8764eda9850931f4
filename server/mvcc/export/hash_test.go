package export

import (
	"bytes"
	"context"
	"hash/crc32"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// blocked is a store whose reads of ranges wait.
type blocked struct {
	sqlstore.Store
	reads   atomic.Int32
	proceed chan struct{}
}

func (s *blocked) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	s.reads.Add(1)
	<-s.proceed
	return s.Store.Iter(ctx, r)
}

func TestSumsOfPartsAreThatOfTheWhole(t *testing.T) {
	whole := []byte("key")
	sum := crc32.Checksum(whole, castagnoli)
	for _, size := range []int{0, 1, 17, len(zeros) - 1, len(zeros), len(zeros) + 1, 3*len(zeros) + 5} {
		part := bytes.Repeat([]byte{byte(size), 7, 0}, size)[:size]
		whole = append(whole, part...)
		sum = hashPart{sum: crc32.Checksum(part, castagnoli), size: size}.appendTo(sum)
		require.Equal(t, crc32.Checksum(whole, castagnoli), sum, size)
	}
}

// Any number of clients may ask for hashes. Only a few of the calls read the table, and the others can be cancelled.
func TestFewHashesAreMadeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &blocked{Store: memstore.New(), proceed: make(chan struct{})}
		e := New(s, node{chosen: func() {}})
		marshal := func(*coder.Record) ([]byte, error) { return nil, nil }
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		var cancelled atomic.Int32
		hash := func(ctx context.Context, kv bool) {
			calls.Go(func() {
				var err error
				if kv {
					_, err = e.HashKV(ctx, auth.System, 0, marshal)
				} else {
					_, err = e.Hash(ctx, auth.System)
				}
				if err != nil {
					cancelled.Add(1)
				}
			})
		}
		hash(t.Context(), true)
		hash(t.Context(), false)
		synctest.Wait()
		for range 10 {
			hash(ctx, true)
			hash(ctx, false)
		}
		synctest.Wait()
		require.EqualValues(t, hashesAtATime, s.reads.Load())
		cancel()
		synctest.Wait()
		require.EqualValues(t, 20, cancelled.Load())
		close(s.proceed)
		calls.Wait()
		before := s.reads.Load()
		hash(t.Context(), true)
		calls.Wait()
		require.Greater(t, s.reads.Load(), before, "the next call reads at once")
		require.EqualValues(t, 20, cancelled.Load())
		require.NoError(t, s.Close())
	})
}
