package replica

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

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
// a clock that stood still it would answer from memory. What else of its process reads the fence row changes nothing.
func TestReadLeaseExpiresWhileSuspended(t *testing.T) {
	for name, tt := range map[string]struct {
		confirm bool
		slept   time.Duration // on the lease's clock
		polled  bool          // by a poll of the table that began before it led
	}{
		"the clock goes on":                                 {slept: time.Hour},
		"the clock cannot be read":                          {slept: -time.Hour},
		"the clock stops, and every read asks the database": {confirm: true},
		"the table was polled":                              {slept: time.Hour, polled: true},
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
				other := open(t, store, sharedStore)
				if !tt.polled {
					mustTxn(t, other, put("k", "2"))
				} else if _, err := old.RefreshState(t.Context()); err != nil { // what other writes next is not in it
					t.Fatal(err)
				}
				clock.at.Add(int64(tt.slept))
				if err := ask(old); !errors.Is(err, mvcc.ErrNotServing) && !errors.Is(err, mvcc.ErrNotLeader) {
					t.Errorf("the old leader answered: %v", err)
				}
			})
		}
	}
}
