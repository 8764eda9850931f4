package replica

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

// reluctant is a store that keeps calls for some rows waiting.
type reluctant struct {
	sqlstore.Store

	mu     sync.Mutex
	prefix []byte        // of the rows that are never read, nil: none
	commit bool          // no commit is answered
	pace   time.Duration // before each row of an iteration
}

func (s *reluctant) set(prefix []byte, commit bool, pace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prefix, s.commit, s.pace = prefix, commit, pace
}

// ask waits, if it must, for ctx to end.
func (s *reluctant) ask(ctx context.Context, key []byte) error {
	s.mu.Lock()
	waits := s.prefix != nil && bytes.HasPrefix(key, s.prefix)
	s.mu.Unlock()
	if waits {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (s *reluctant) Get(ctx context.Context, key []byte) ([]byte, error) {
	if err := s.ask(ctx, key); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, key)
}

func (s *reluctant) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	for _, key := range keys {
		if err := s.ask(ctx, key); err != nil {
			return nil, err
		}
	}
	return s.Store.MultiGet(ctx, keys)
}

func (s *reluctant) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	return func(yield func(sqlstore.Row, error) bool) {
		if err := s.ask(ctx, r.Start); err != nil {
			yield(sqlstore.Row{}, err)
			return
		}
		for row, err := range s.Store.Iter(ctx, r) {
			s.mu.Lock()
			pace := s.pace
			s.mu.Unlock()
			if pace > 0 {
				time.Sleep(pace) // simulated time
			}
			if err == nil {
				err = ctx.Err()
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

func (s *reluctant) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		s.mu.Lock()
		waits := s.commit
		s.mu.Unlock()
		if waits {
			<-ctx.Done()
			return errors.Join(sqlstore.ErrUncertain, ctx.Err())
		}
		return b.BatchWrite.Commit(ctx)
	})
}

// A takeover ends when the database does not answer one of its calls, whichever that is. The
// node leads once the database answers.
func TestTakeoverEndsWhenTheDatabaseIsSilent(t *testing.T) {
	log, _ := coder.LogBounds(0, math.MaxInt64)
	leases, _ := coder.LeaseBounds()
	alarms, _ := coder.AlarmBounds()
	tokens, _ := coder.TokenBounds()
	for name, silent := range map[string]struct {
		prefix []byte
		commit bool
	}{
		"data loss marker":  {prefix: coder.DataLossKey()},
		"fence row":         {prefix: coder.FenceKey()},
		"swap of fence row": {commit: true},
		"job row":           {prefix: coder.JobKey()},
		"alarms":            {prefix: alarms},
		"leases":            {prefix: leases},
		"users and roles":   {prefix: coder.AuthSettingsKey()},
		"tokens":            {prefix: tokens},
		"compaction mark":   {prefix: coder.CompactKey()},
		"log":               {prefix: log[:4]},
		"values of the log": {prefix: coder.EncodeVersionKey([]byte("k"), 2)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &reluctant{Store: newStore(t)}
				p := newPair(t, store)
				p.lead(0)
				mustTxn(t, p.nodes[0], put("k", "1"))
				mustGrant(t, p.nodes[0], 1, 3600)
				p.mustResign(0)
				store.set(silent.prefix, silent.commit, 0)
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 3*timing.TakeoverSilence)
				defer cancel()
				err := p.nodes[1].Lead(ctx, nil)
				if took := time.Since(began); !errors.Is(err, errNoProgress) || took > 2*timing.TakeoverSilence {
					t.Errorf("after %s: %v", took, err)
				}
				store.set(nil, false, 0)
				p.lead(1)
				if res := mustTxn(t, p.nodes[1], put("k", "2")); res.Revision != 3 {
					t.Errorf("revision %d", res.Revision)
				}
			})
		})
	}
}

// A takeover that reads many rows may take long.
func TestTakeoverContinuesWhileRowsArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &reluctant{Store: newStore(t)}
		p := newPair(t, store)
		p.lead(0)
		for id := range int64(6) {
			mustTxn(t, p.nodes[0], put("k", "v"))
			mustGrant(t, p.nodes[0], 1+id, 3600)
		}
		p.mustResign(0)
		store.set(nil, false, timing.TakeoverSilence-time.Second)
		began := time.Now()
		p.lead(1)
		if took := time.Since(began); took < 2*timing.TakeoverSilence {
			t.Errorf("the takeover took %s, which shows nothing", took)
		}
	})
}
