package backend

import (
	"bytes"
	"math"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
)

// policyBucket is the part of a policy's TTL for which keys share one lease, at
// least a second: they live up to this much longer than the policy says, and
// there are few leases.
const policyBucket = 10

// policyLeaseKeys is after how many puts a policy's next keys get another lease, as
// kube-apiserver has it: the expiry of a lease holds up other writes by the number of
// its keys.
const policyLeaseKeys = 1000

// policyLease returns the lease for a key that is put without one: the current
// one of the longest matching policy, or 0 if none matches.
func (st *stage) policyLease(key []byte) (int64, error) {
	best := -1
	for i, p := range st.b.cfg.TTLPolicies {
		if bytes.HasPrefix(key, p.Prefix) && (best < 0 || len(p.Prefix) > len(st.b.cfg.TTLPolicies[best].Prefix)) {
			best = i
		}
	}
	if best < 0 {
		return 0, nil
	}
	return st.l.policies.lease(st, best, time.Now())
}

// policyLeases holds each policy's current lease. Sequencer only.
type policyLeases struct {
	policies []TTLPolicy
	current  []policyLease
}

type policyLease struct {
	id    int64
	until time.Time // keys are added until then
	puts  int       // that got it
}

func newPolicyLeases(policies []TTLPolicy) *policyLeases {
	return &policyLeases{policies: policies, current: make([]policyLease, len(policies))}
}

func (p *policyLeases) lease(st *stage, i int, now time.Time) (int64, error) {
	cur := &p.current[i]
	if cur.id != 0 && now.Before(cur.until) && cur.puts < policyLeaseKeys && st.leaseOpen(cur.id) {
		cur.puts++
		return cur.id, nil
	}
	bucket := max(p.policies[i].TTL/policyBucket, time.Second)
	ttl := int64(math.Ceil((p.policies[i].TTL + bucket).Seconds()))
	row, err := st.grant(coder.Lease{TTL: max(ttl, st.b.cfg.MinLeaseTTL), Policy: true})
	if err != nil {
		return 0, err
	}
	// If the batch is not committed the lease does not exist, and the next put
	// makes another.
	*cur = policyLease{id: row.ID, until: now.Add(bucket), puts: 1}
	return row.ID, nil
}
