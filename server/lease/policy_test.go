package lease

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestKeysUnderPolicyExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lead(t, newStore(t), func(c *Config) {
			c.Policies = []Policy{{Prefix: []byte("/events/"), TTL: 10 * time.Second},
				{Prefix: []byte("/events/keep/"), TTL: time.Hour}}
		})
		l.put("/events/a", 0)
		l.put("/events/keep/a", 0)
		l.put("/other", 0)
		time.Sleep(10 * time.Second)
		require.Equal(t, "/events/a /events/keep/a /other", l.keys())
		time.Sleep(time.Second + time.Millisecond) // keys share a lease for a second
		synctest.Wait()
		require.Equal(t, "/events/keep/a /other", l.keys())
		left := l.records(l.Revision())
		require.NotZero(t, left[0].Lease)
		require.Zero(t, left[1].Lease)
	})
}

func TestLongestPolicy(t *testing.T) {
	l := lead(t, newStore(t), func(c *Config) { c.Policies = []Policy{{Prefix: []byte("/events/"), TTL: MaxPolicyTTL}} })
	l.put("/events/a", 0)
	ttl := l.ttl(l.records(l.Revision())[0].Lease)
	require.GreaterOrEqual(t, ttl, int64(MaxPolicyTTL/time.Second))
	require.LessOrEqual(t, ttl, int64(MaxTTL))
}

func TestPolicyLeaseIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lead(t, newStore(t), func(c *Config) {
			c.Policies = []Policy{{Prefix: []byte("/events/"), TTL: 100 * time.Second}}
		})
		leaseOf := func(key string) int64 {
			l.put(key, 0)
			records := l.records(l.Revision())
			return records[len(records)-1].Lease
		}
		first := leaseOf("/events/a")
		time.Sleep(10*time.Second - time.Millisecond)
		require.Equal(t, first, leaseOf("/events/b"))
		time.Sleep(time.Millisecond)
		second := leaseOf("/events/c")
		require.NotEqual(t, first, second, "a lease is shared for longer than a tenth of the TTL")
		_, err := l.revoke(second)
		require.NoError(t, err)
		require.NotContains(t, []int64{first, second, 0}, leaseOf("/events/d"))
	})
}

func TestPolicyLeaseHoldsBoundedNumberOfKeys(t *testing.T) {
	l := lead(t, newStore(t), func(c *Config) { c.Policies = []Policy{{Prefix: []byte("/events/"), TTL: time.Hour}} })
	l.attach("/events/", 2*policyLeaseKeys+1, 0)
	held := make(map[int64]int)
	for _, r := range l.records(l.Revision()) {
		held[r.Lease]++
	}
	require.Len(t, held, 3)
	for id, n := range held {
		require.NotZero(t, id)
		require.LessOrEqual(t, n, policyLeaseKeys)
	}
}
