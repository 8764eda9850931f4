package etcd

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// kvCounters counts the operations on keys, those inside transactions too.
type kvCounters struct {
	ranges, puts, deletes, txns prometheus.Counter
}

func newKVCounters(r prometheus.Registerer) *kvCounters {
	counter := func(name, help string) prometheus.Counter {
		return promauto.With(r).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &kvCounters{
		ranges:  counter("etcd_mvcc_range_total", "Total number of ranges seen by this member."),
		puts:    counter("etcd_mvcc_put_total", "Total number of puts seen by this member."),
		deletes: counter("etcd_mvcc_delete_total", "Total number of deletes seen by this member."),
		txns:    counter("etcd_mvcc_txn_total", "Total number of transactions of several operations seen by this member."),
	}
}

func (c *kvCounters) countTxn(r *mvcc.TxnResult) {
	if c.countOps(r.Results) > 1 {
		c.txns.Inc()
	}
}

func (c *kvCounters) countOps(results []mvcc.OpResult) (n int) {
	for i := range results {
		switch r := &results[i]; {
		case r.Range != nil:
			c.ranges.Inc()
			n++
		case r.Put != nil:
			c.puts.Inc()
			n++
		case r.Delete != nil:
			c.deletes.Inc()
			n++
		case r.Txn != nil:
			n += c.countOps(r.Txn.Results)
		}
	}
	return n
}
