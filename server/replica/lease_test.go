package replica

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/watch"
)

func putLeased(key string, leaseID int64) *mvcc.Txn {
	return &mvcc.Txn{Then: []mvcc.Op{{Put: &mvcc.PutRequest{Key: []byte(key), Value: []byte("v"), Lease: leaseID}}}}
}

func mustGrant(t testing.TB, b *Replica, id, ttl int64) int64 {
	t.Helper()
	l, err := lessor(t, b).Grant(t.Context(), auth.System, id, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return l.ID
}

// attach puts keys with a lease, 500 in a transaction.
func attach(t testing.TB, b *Replica, prefix string, keys int, leaseID int64) {
	t.Helper()
	for i := 0; i < keys; i += 500 {
		txn := &mvcc.Txn{}
		for j := i; j < min(i+500, keys); j++ {
			txn.Then = append(txn.Then, putLeased(fmt.Sprintf("%s%06d", prefix, j), leaseID).Then...)
		}
		mustTxn(t, b, txn)
	}
}

func TestWatchersSeeExpiryOfLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, newStore(t), nil)
		stream := b.Hub.NewStream()
		defer stream.Close()
		stream.Create(watch.Permitted, watch.CreateRequest{Key: []byte("a"), StartRevision: 3})
		id := mustGrant(t, b, 0, 2)
		mustTxn(t, b, putLeased("a", id))
		expectDelete(t, stream, "a")
		if _, err := lessor(t, b).KeepAlive(t.Context(), auth.System, id); !errors.Is(err, mvcc.ErrLeaseNotFound) {
			t.Fatalf("renewing an expired lease: %v", err)
		}
	})
}

func expectDelete(t *testing.T, stream *watch.Stream, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Deadline)
	defer cancel()
	for {
		resp, err := stream.Next(ctx)
		if err != nil {
			t.Fatalf("waiting for the delete event of %s: %v", key, err)
		}
		for _, e := range resp.Events {
			if e.Type == watch.Delete && string(e.Record.Key) == key {
				return
			}
		}
	}
}

// bubbleClock makes the read lease follow the clock of the test's bubble.
func bubbleClock(c *Config) {
	start := time.Now()
	c.FenceClock = func() time.Duration { return time.Since(start) }
}

// TestSuccessorKeepsRenewalsOfDeposedLeader checks that a new leader does not shorten a lease
// that the old one renewed, without a commit, before it noticed the new one.
func TestSuccessorKeepsRenewalsOfDeposedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, old, next := newLedPair(t, newStore(t), bubbleClock)
		id := mustGrant(t, old, 0, 1000)
		last := make(chan time.Time) // acknowledged renewal
		began := time.Now()
		go func() {
			var renewed time.Time
			for {
				asked := time.Now()
				if _, err := lessor(t, old).KeepAlive(context.Background(), auth.System, id); err != nil {
					last <- renewed
					return
				}
				renewed = asked
				time.Sleep(time.Millisecond)
			}
		}()
		p.lead(1)
		renewed := <-last
		require.True(t, renewed.After(began), "the old leader renewed nothing while the next one took over")
		for st := (lease.Status{}); st.TTL >= 0; {
			time.Sleep(max(time.Millisecond, time.Duration(st.TTL)*time.Second))
			var err error
			st, err = lessor(t, next).TimeToLive(t.Context(), auth.System, id, false)
			require.NoError(t, err)
		}
		lived := time.Since(renewed) - timing.LeaseGrace
		require.GreaterOrEqual(t, lived, 1000*time.Second, "the next leader ended the lease early")
	})
}
