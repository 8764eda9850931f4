package replica

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// fenceReads is a store that counts reads of the fence row.
type fenceReads struct {
	sqlstore.Store
	n atomic.Int64
}

func (s *fenceReads) Get(ctx context.Context, key []byte) ([]byte, error) {
	if bytes.Equal(key, coder.FenceKey()) {
		s.n.Add(1)
	}
	return s.Store.Get(ctx, key)
}

// leaseTime is a clock that a test sets.
type leaseTime struct{ at atomic.Int64 }

func (c *leaseTime) now() time.Duration { return time.Duration(c.at.Load()) }

func readKey(b *Replica) (string, error) {
	r, err := b.Reader.Range(context.Background(), auth.System,
		&mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte("k")}}, true)
	if err != nil || len(r.Records) == 0 {
		return "", err
	}
	return string(r.Records[0].Value), nil
}

// TestReadLeaseExpiresWhileSuspended: a leader wakes up after another one wrote. With
// a clock that stood still it would answer from memory.
func TestReadLeaseExpiresWhileSuspended(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Config)
		slept  time.Duration // on the lease's clock
	}{
		{"the clock goes on", func(*Config) {}, time.Hour},
		{"the clock cannot be read", func(*Config) {}, -time.Hour},
		{"the clock stops, and every read asks the database", func(c *Config) { c.ConfirmReads = true }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := &fenceReads{Store: newStore(t)}
			var clock leaseTime
			clock.at.Store(int64(time.Minute))
			old := open(t, store, func(c *Config) {
				c.Exclusive, c.FenceClock = false, clock.now
				tt.change(c)
			})
			if _, err := old.Txn(t.Context(), auth.System, put("k", "1"), true); err != nil {
				t.Fatal(err)
			}
			if got, err := readKey(old); got != "1" || err != nil {
				t.Fatal(got, err)
			}
			young := open(t, store, sharedStore)
			if _, err := young.Txn(t.Context(), auth.System, put("k", "2"), true); err != nil {
				t.Fatal(err)
			}
			clock.at.Add(int64(tt.slept))
			if got, err := readKey(old); err == nil {
				t.Errorf("the old leader answered %q", got)
			} else if !errors.Is(err, mvcc.ErrNotServing) && !errors.Is(err, mvcc.ErrNotLeader) {
				t.Error(err)
			}
		})
	}
}

// TestConfirmReadsAsksTheDatabaseForEveryRead if it is to; with a read lease, few do.
func TestConfirmReadsAsksTheDatabaseForEveryRead(t *testing.T) {
	const reads = 50
	for _, exclusive := range []bool{false, true} {
		for _, confirm := range []bool{false, true} {
			store := &fenceReads{Store: newStore(t)}
			var clock leaseTime
			b := open(t, store, func(c *Config) {
				c.Exclusive, c.ConfirmReads, c.FenceClock = exclusive, confirm, clock.now
			})
			if _, err := b.Txn(t.Context(), auth.System, put("k", "1"), true); err != nil {
				t.Fatal(err)
			}
			before := store.n.Load()
			for range reads {
				if got, err := readKey(b); got != "1" || err != nil {
					t.Fatal(got, err)
				}
			}
			asked := store.n.Load() - before
			if confirm && asked < reads {
				t.Errorf("exclusive=%t: %d reads asked the database %d times", exclusive, reads, asked)
			}
			if !confirm && asked >= reads { // a few are the fence's own
				t.Errorf("exclusive=%t: %d reads with a lease asked the database %d times", exclusive, reads, asked)
			}
		}
	}
}
