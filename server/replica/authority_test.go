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
	for name, tt := range map[string]struct {
		confirm bool
		slept   time.Duration // on the lease's clock
	}{
		"the clock goes on":                                 {false, time.Hour},
		"the clock cannot be read":                          {false, -time.Hour},
		"the clock stops, and every read asks the database": {true, 0},
	} {
		for what, ask := range map[string]func(*Replica) error{
			"a read": func(b *Replica) error { _, err := readKey(b); return err },
			"a compare that fails": func(b *Replica) error {
				txn := put("k", "3")
				txn.Compares = []mvcc.Compare{{KeyRange: mvcc.KeyRange{Key: []byte("k")}, Target: mvcc.CompareValue,
					Value: []byte("2")}}
				_, err := b.Txn(t.Context(), auth.System, txn, true)
				return err
			},
			"a lease": func(b *Replica) error {
				_, err := lessor(t, b).TimeToLive(t.Context(), auth.System, 1, false)
				return err
			},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				store := newStore(t)
				var clock leaseTime
				clock.at.Store(int64(time.Minute))
				old := open(t, store, func(c *Config) {
					c.Exclusive, c.FenceClock, c.ConfirmReads = false, clock.now, tt.confirm
				})
				mustTxn(t, old, put("k", "1"))
				if got, err := readKey(old); got != "1" || err != nil {
					t.Fatal(got, err)
				}
				mustTxn(t, open(t, store, sharedStore), put("k", "2"))
				clock.at.Add(int64(tt.slept))
				if err := ask(old); !errors.Is(err, mvcc.ErrNotServing) && !errors.Is(err, mvcc.ErrNotLeader) {
					t.Errorf("the old leader answered: %v", err)
				}
			})
		}
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
