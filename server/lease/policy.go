package lease

import (
	"bytes"
	"math"
	"math/rand/v2"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
)

const (
	// policyBucket is the divisor of a policy's TTL that gives the time for which keys share a
	// lease, at least a second. It bounds the number of leases, and how much longer than the
	// TTL keys live.
	policyBucket = 10
	// policyLeaseKeys is the maximum number of puts that share a lease, as in kube-apiserver,
	// because other writes wait longer for the revocation of a lease with more keys.
	policyLeaseKeys = 1000
)

// MaxPolicyTTL is the longest TTL of a Policy: its leases live for a bucket longer.
const MaxPolicyTTL = MaxTTL * time.Second / (policyBucket + 1) * policyBucket

// Policy limits the life of keys under Prefix that are put without a lease.
type Policy struct {
	Prefix []byte
	TTL    time.Duration // at most MaxPolicyTTL
}

// policy is a Policy and its current lease.
type policy struct {
	Policy Policy
	id     int64     // 0: none
	until  time.Time // puts share the lease until then
	puts   int       // that share the lease
}

// PolicyLease implements write.Leases. It returns the current lease of the policy with the
// longest matching prefix.
func (l *Lessor) PolicyLease(tx *write.Tx, key []byte) (int64, error) {
	best := -1
	for i, p := range l.policies {
		if bytes.HasPrefix(key, p.Policy.Prefix) && (best < 0 || len(p.Policy.Prefix) > len(l.policies[best].Policy.Prefix)) {
			best = i
		}
	}
	if best < 0 {
		return 0, nil
	}
	p, now := &l.policies[best], l.cfg.Clock()
	if p.id != 0 && now.Before(p.until) && p.puts < policyLeaseKeys && tx.LeaseOpen(p.id) {
		p.puts++
		return p.id, nil
	}
	bucket := max(p.Policy.TTL/policyBucket, time.Second)
	ttl := int64(math.Ceil((p.Policy.TTL + bucket).Seconds()))
	row, err := l.grant(tx, coder.Lease{TTL: max(ttl, l.cfg.MinTTL), Policy: true})
	if err != nil {
		return 0, err
	}
	// If the commit fails, the lease does not exist, and the next put grants another one.
	p.id, p.until, p.puts = row.ID, now.Add(bucket), 1
	return row.ID, nil
}

// grant grants a lease in tx. It chooses an id if row has none.
func (l *Lessor) grant(tx *write.Tx, row coder.Lease) (coder.Lease, error) {
	exists := func() bool {
		_, ok := tx.Lease(row.ID)
		return ok
	}
	if row.ID == 0 {
		for row.ID == 0 || exists() {
			row.ID = rand.Int64() // not negative, like the ids that etcd chooses
		}
	} else if exists() {
		return row, mvcc.ErrLeaseExists
	}
	tx.SetLease(row.ID, &row)
	tx.OnCommit(func() { l.add(row, l.cfg.Clock()) })
	return row, nil
}
