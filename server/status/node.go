package status

import (
	"context"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/server/replica"
)

// Node is what is reported about. The errors of Stopped and Fed may be shown to every caller.
type Node interface {
	MemberID() uint64
	Status() replica.Status
	// Stopped and Fed return what keeps the node from serving, or from seeing new commits.
	Stopped() error
	Fed() error
}

// Reader reads keys.
type Reader interface {
	Range(ctx context.Context, as auth.Permit, r *mvcc.RangeRequest, linearizable bool) (*mvcc.RangeResult, error)
}

// Alarms knows the raised alarms.
type Alarms interface{ All() []quota.Alarm }

// Probe finds out whether the database accepts writes.
type Probe interface {
	Writable(ctx context.Context) error
}
