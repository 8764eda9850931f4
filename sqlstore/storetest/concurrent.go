package storetest

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func testConcurrentCAS(t *testing.T, s sqlstore.Store) {
	const writers, rounds = 8, 15
	token := coder.FenceToken{Sequence: 1}
	commit(t, s, func(b sqlstore.BatchWrite) { b.PutIfNotExist(coder.FenceKey(), coder.EncodeFenceToken(token)) })
	for round := range rounds {
		var outcomes [writers]error
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				next := coder.FenceToken{Sequence: token.Sequence + 1, Term: int64(w)}
				outcomes[w] = tryCommit(s, func(b sqlstore.BatchWrite) {
					b.CAS(coder.FenceKey(), coder.EncodeFenceToken(next), coder.EncodeFenceToken(token))
					b.PutIfNotExist(fmt.Appendf(nil, "round %d writer %d", round, w), []byte("x"))
				})
			})
		}
		wg.Wait()
		won, winners := -1, 0
		for w, err := range outcomes {
			if err == nil {
				won = w
				winners++
			} else {
				require.True(t, sqlstore.IsConflict(err), "round %d: %v", round, err)
			}
		}
		require.Equal(t, 1, winners, "round %d", round)
		token = coder.FenceToken{Sequence: token.Sequence + 1, Term: int64(won)}
		mustHold(t, s, coder.FenceKey(), coder.EncodeFenceToken(token))
		for w := range writers {
			var want []byte
			if w == won {
				want = []byte("x")
			}
			mustHold(t, s, fmt.Appendf(nil, "round %d writer %d", round, w), want)
		}
	}
}

func testConcurrentCounter(t *testing.T, s sqlstore.Store) { countTogether(t, s, []byte("counter")) }

func testConcurrentPair(t *testing.T, s sqlstore.Store) {
	countTogether(t, s, []byte("counter a"), []byte("counter b"))
}

// countTogether has several writers count in all rows at a time. They name the rows in different orders.
func countTogether(t *testing.T, s sqlstore.Store, keys ...[]byte) {
	const writers, each = 4, 20
	ctx := context.Background()
	commit(t, s, func(b sqlstore.BatchWrite) {
		for _, key := range keys {
			b.Put(key, []byte("0"))
		}
	})
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for done := 0; done < each; {
				rows, err := s.MultiGet(ctx, keys)
				if !assert.NoError(t, err) || !assert.Equal(t, rows[0], rows[len(rows)-1]) {
					return
				}
				n, err := strconv.Atoi(string(rows[0]))
				if !assert.NoError(t, err) {
					return
				}
				err = tryCommit(s, func(b sqlstore.BatchWrite) {
					for i := range keys {
						i = (i + w) % len(keys)
						b.CAS(keys[i], fmt.Append(nil, n+1), rows[i])
					}
				})
				if err == nil {
					done++
				} else if !assert.True(t, sqlstore.IsConflict(err), err) {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, key := range keys {
		mustHold(t, s, key, fmt.Append(nil, writers*each))
	}
}

func testReadYourCommit(t *testing.T, s sqlstore.Store) {
	ctx := context.Background()
	token := func(n int64) []byte { return coder.EncodeFenceToken(coder.FenceToken{Sequence: n}) }
	commit(t, s, func(b sqlstore.BatchWrite) { b.PutIfNotExist(coder.FenceKey(), token(1)) })
	var committed atomic.Int64
	committed.Store(1)
	read := map[string]func() ([]byte, error){
		"Get": func() ([]byte, error) { return s.Get(ctx, coder.FenceKey()) },
		"MultiGet": func() ([]byte, error) {
			values, err := s.MultiGet(ctx, [][]byte{coder.FenceKey()})
			if err != nil {
				return nil, err
			}
			return values[0], nil
		},
		"Iter": func() ([]byte, error) {
			row, _, err := sqlstore.First(s.Iter(ctx, sqlstore.Range{Start: coder.FenceKey(), End: append(coder.FenceKey(), 0)}))
			return row.Value, err
		},
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for name, get := range read {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				floor := committed.Load()
				value, err := get()
				if !assert.NoError(t, err, name) {
					return
				}
				c, err := coder.DecodeFenceToken(value)
				if !assert.NoError(t, err, name) || !assert.GreaterOrEqual(t, c.Sequence, floor, "%s, after that commit", name) {
					return
				}
			}
		})
	}
	for n := int64(2); n < 120; n++ {
		err := tryCommit(s, func(b sqlstore.BatchWrite) { b.CAS(coder.FenceKey(), token(n), token(n-1)) })
		if !assert.NoError(t, err) {
			break
		}
		committed.Store(n)
	}
	close(done)
	wg.Wait()
}
