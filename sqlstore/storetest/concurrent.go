package storetest

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func testConcurrentCAS(t *testing.T, s sqlstore.Store) {
	const writers, rounds = 8, 15
	token := coder.FenceToken{Sequence: 1}
	commit(t, s, func(b sqlstore.BatchWrite) { b.PutIfNotExist(coder.FenceKey(), coder.EncodeFenceToken(token)) })
	for round := range rounds {
		var winners [writers]bool
		var failures [writers]error
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				next := coder.FenceToken{Sequence: token.Sequence + 1, Term: int64(w)}
				err := tryCommit(s, func(b sqlstore.BatchWrite) {
					b.CAS(coder.FenceKey(), coder.EncodeFenceToken(next), coder.EncodeFenceToken(token))
					b.PutIfNotExist(fmt.Appendf(nil, "round %d writer %d", round, w), []byte("x"))
				})
				winners[w] = err == nil
				if err != nil && !sqlstore.IsConflict(err) {
					failures[w] = err
				}
			})
		}
		wg.Wait()
		won := -1
		for w := range writers {
			if failures[w] != nil {
				t.Fatalf("round %d: %v", round, failures[w])
			}
			if winners[w] && won >= 0 {
				t.Fatalf("round %d: writers %d and %d both won", round, won, w)
			}
			if winners[w] {
				won = w
			}
		}
		if won < 0 {
			t.Fatalf("round %d: nobody won", round)
		}
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
				if err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(rows[0], rows[len(rows)-1]) {
					t.Errorf("the rows hold %q", rows)
					return
				}
				n, err := strconv.Atoi(string(rows[0]))
				if err != nil {
					t.Error(err)
					return
				}
				err = tryCommit(s, func(b sqlstore.BatchWrite) {
					for i := range keys {
						i = (i + w) % len(keys)
						b.CAS(keys[i], fmt.Append(nil, n+1), rows[i])
					}
				})
				switch {
				case err == nil:
					done++
				case !sqlstore.IsConflict(err):
					t.Error(err)
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
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				c, err := coder.DecodeFenceToken(value)
				if err != nil || c.Sequence < floor {
					t.Errorf("%s saw commit %d after the commit of %d had returned (%v)", name, c.Sequence, floor, err)
					return
				}
			}
		})
	}
	for n := int64(2); n < 120; n++ {
		if err := tryCommit(s, func(b sqlstore.BatchWrite) { b.CAS(coder.FenceKey(), token(n), token(n-1)) }); err != nil {
			t.Errorf("Commit: %v", err)
			break
		}
		committed.Store(n)
	}
	close(done)
	wg.Wait()
}
