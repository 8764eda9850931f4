// Package backend is being written.
package backend

import (
	"context"
	"time"

	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/watch"
)

// TTLPolicy gives keys under Prefix that are put without a lease a fixed life.
type TTLPolicy struct {
	Prefix []byte
	TTL    time.Duration
}

// Config configures a Backend. Zero values are replaced by the defaults named.
type Config struct {
	Logger         *slog.Logger
	Name           string        // member name, "default"
	QuotaBytes     int64         // space quota, 0: none
	RequestTimeout time.Duration // bound on a request without a nearer deadline, 7 s as in etcd
	MinLeaseTTL    int64         // seconds, 2
	BatchRows      int           // most rows of one commit
	BatchBytes     int           // most bytes of one commit
	IndexCache     int           // entries of the index cache
	TTLPolicies    []TTLPolicy

	// AutoCompactionMode is "", "periodic" or "revision"; see etcd.
	AutoCompactionMode      string
	AutoCompactionRetention time.Duration // periodic
	AutoCompactionRevisions int64         // revision

	Watch      watch.Config
	Registerer prometheus.Registerer // nil: metrics are kept, not registered
}

// Backend is one node's state over a Store.
type Backend struct{}

// Open takes the leadership of the table and returns a serving backend.
func Open(ctx context.Context, store sqlstore.Store, cfg Config) (*Backend, error) { panic("draft") }

// Close stops all work in order: requests under way are answered first.
func (b *Backend) Close(ctx context.Context) error { panic("draft") }

func (b *Backend) Revision() int64        { panic("draft") }
func (b *Backend) CompactRevision() int64 { panic("draft") }
func (b *Backend) ClusterID() uint64      { panic("draft") }
func (b *Backend) MemberID() uint64       { panic("draft") }
func (b *Backend) Hub() *watch.Hub        { panic("draft") }
func (b *Backend) Status() Status         { panic("draft") }

// Range answers r. linearizable says that it must see every write acknowledged before the call.
func (b *Backend) Range(ctx context.Context, r *RangeRequest, linearizable bool) (*RangeResult, error) {
	panic("draft")
}

// RangeStream answers r in chunks of about chunkBytes bytes: send is called with the records of each, in key order;
// the last call carries Count, More and Revision as well and may have no records.
func (b *Backend) RangeStream(ctx context.Context, r *RangeRequest, linearizable bool, chunkBytes int, send func(*RangeResult, bool) error) error {
	panic("draft")
}

// Txn executes t; single puts and deletes are transactions of one Op.
func (b *Backend) Txn(ctx context.Context, t *Txn, linearizable bool) (*TxnResult, error) {
	panic("draft")
}

// Compact discards history below rev; physical waits until the rows are gone. It returns the current revision.
func (b *Backend) Compact(ctx context.Context, rev int64, physical bool) (int64, error) {
	panic("draft")
}

func (b *Backend) LeaseGrant(ctx context.Context, id, ttl int64) (LeaseStatus, error) { panic("draft") }
func (b *Backend) LeaseRevoke(ctx context.Context, id int64) error                    { panic("draft") }

// LeaseKeepAlive renews a lease and returns its TTL; 0 and ErrLeaseNotFound if there is none.
func (b *Backend) LeaseKeepAlive(ctx context.Context, id int64) (ttl int64, err error) {
	panic("draft")
}
func (b *Backend) LeaseTimeToLive(ctx context.Context, id int64, keys bool) (LeaseStatus, error) {
	panic("draft")
}
func (b *Backend) Leases(ctx context.Context) ([]int64, error) { panic("draft") }

func (b *Backend) Alarms() []Alarm                                           { panic("draft") }
func (b *Backend) RaiseAlarm(ctx context.Context, a Alarm) ([]Alarm, error)  { panic("draft") }
func (b *Backend) DisarmAlarm(ctx context.Context, a Alarm) ([]Alarm, error) { panic("draft") }
func (b *Backend) HashKV(ctx context.Context, rev int64) (Hash, error)       { panic("draft") }

// Hash is the hash of the whole table.
func (b *Backend) Hash(ctx context.Context) (uint32, error) { panic("draft") }
func (b *Backend) Defragment(ctx context.Context) error     { panic("draft") }
