package mvcc

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Errors a request can end with. The server's front maps each to etcd's gRPC
// error of the same meaning.
var (
	// ErrCompacted: the revision asked for is below the compact revision.
	ErrCompacted = errors.New("revision has been compacted")
	// ErrFutureRevision: the revision asked for is above the current one.
	ErrFutureRevision = errors.New("revision is in the future")
	// ErrKeyNotFound: ignore_value or ignore_lease on a key that does not exist.
	ErrKeyNotFound = errors.New("key not found")
	// ErrDuplicateKey: a transaction puts a key in one nested transaction and deletes it in a
	// later one. A revision holds one version of a key. Nothing was written.
	ErrDuplicateKey = errors.New("key is put and deleted in one transaction")
	// ErrLeaseNotFound, ErrLeaseExists, ErrLeaseTTLTooLarge: as in etcd.
	ErrLeaseNotFound    = errors.New("lease not found")
	ErrLeaseExists      = errors.New("lease already exists")
	ErrLeaseTTLTooLarge = errors.New("lease TTL too large")
	// ErrNotServing: this node was deposed, is starting or stopping, or found that the
	// database lost data. Nothing was written.
	ErrNotServing = errors.New("not serving")
	// ErrLeaderUnreachable: only the leader can answer this, and this node cannot
	// connect to it. Another node may. Nothing was written.
	ErrLeaderUnreachable = fmt.Errorf("%w: cannot connect to the leader", ErrNotServing)
	// ErrNotLeader: this node does not lead, and only the leader can answer this.
	// Nothing was written.
	ErrNotLeader = errors.New("not leader")
	// ErrLeaderLost: the leadership ended while the request was under way; a write
	// may or may not take effect.
	ErrLeaderLost = errors.New("leader changed")
	// ErrTimeout: the request was not answered within the server's request
	// timeout; a write may or may not take effect.
	ErrTimeout = errors.New("request timed out")
	// ErrTooManyRequests: too many requests are queued. Nothing was written.
	ErrTooManyRequests = errors.New("too many requests")
	// ErrSortTooLarge: a range is larger than what a stream sorts.
	ErrSortTooLarge = errors.New("range too large to be sorted for a stream")
	// ErrTooLarge: a key, value or transaction does not fit the database, or what a transaction reads does not fit the
	// memory that it may take.
	ErrTooLarge = errors.New("too large")
)

// PublicError returns err as a request with context ctx ends with it: ErrTimeout if that was
// the cause of ctx's end, or ctx's error, or ErrTooLarge for the database's error of that
// meaning, else err itself.
func PublicError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), ErrTimeout):
		return ErrTimeout
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, sqlstore.ErrTooLarge):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	default:
		return err
	}
}
