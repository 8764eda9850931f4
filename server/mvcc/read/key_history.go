package read

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// KeyHistoryRequest asks for the versions of one key, newest first.
type KeyHistoryRequest struct {
	Key    []byte
	Before int64 // only versions below this revision; 0: all
	Limit  int   // at least 1
	// MaxBytes ends the answer once its values have as many bytes; one version is
	// always there.
	MaxBytes int
}

// KeyHistory answers a KeyHistoryRequest. Like etcd's watch it knows all versions
// after the compact revision, deletions too, and the one that was current at it.
type KeyHistory struct {
	Revision        int64
	CompactRevision int64 // -1: nothing was compacted yet
	Versions        []*coder.Record
	Times           []time.Time // of the commits of Versions; the zero time where it is not known
	More            bool
}

// KeyHistory lists the versions of a key that are not compacted. Errors: those of
// Range.
func (r *Reader) KeyHistory(ctx context.Context, as auth.Permit, q *KeyHistoryRequest) (*KeyHistory, error) {
	ctx, cancel := r.timeout.Bound(ctx)
	defer cancel()
	out, err := r.keyHistory(ctx, as, q)
	return out, mvcc.PublicError(ctx, err)
}

func (r *Reader) keyHistory(ctx context.Context, as auth.Permit, q *KeyHistoryRequest) (*KeyHistory, error) {
	now, err := r.Now(ctx, as, true)
	if err != nil {
		return nil, err
	}
	newest := now.rev
	if q.Before > 0 {
		newest = min(newest, q.Before-1)
	}
	out := &KeyHistory{Revision: now.rev}
	// Rows after the mark stay whatever compaction does; what it may have removed before
	// this look at it must not be shown.
	versions, err := r.versionsOf(ctx, q, newest)
	if err != nil {
		return nil, err
	}
	if out.CompactRevision, err = r.node.Mark(ctx); err != nil {
		return nil, err
	}
	out.Versions, out.More = q.page(versions, out.CompactRevision)
	out.Times, err = r.log().Times(ctx, out.Versions)
	return out, err
}

// versionsOf reads the versions of the key up to revision newest, newest first: as
// many as a page needs, and one more.
func (r *Reader) versionsOf(ctx context.Context, q *KeyHistoryRequest, newest int64) ([]*coder.Record, error) {
	lo, hi := coder.VersionsUpTo(q.Key, min(newest, math.MaxInt64-1))
	compacted := r.node.CompactRevision()
	var versions []*coder.Record
	raw, err := r.store.Get(ctx, coder.EncodeIndexKey(q.Key))
	switch {
	case errors.Is(err, sqlstore.ErrKeyNotFound):
	case err != nil:
		return nil, err
	default:
		x, err := coder.DecodeIndex(raw)
		if err != nil {
			return nil, err
		}
		if x.Tombstone && x.ModRevision <= newest { // it has no version row until the key is created again
			versions = append(versions, x.Record(q.Key))
		}
	}
	bytes := 0
	for rec, err := range history.EachVersion(ctx, r.store,
		sqlstore.Range{Start: lo, End: hi, Reverse: true, Limit: q.Limit + 1}) {
		if err != nil {
			return nil, err
		}
		if len(versions) == 0 || versions[len(versions)-1].ModRevision != rec.ModRevision {
			versions = append(versions, rec)
		}
		if bytes += len(rec.Value); rec.ModRevision <= compacted || bytes > q.MaxBytes && len(versions) > 1 {
			return versions, nil
		}
	}
	return versions, nil
}

// page returns what may be shown of versions once mark is the compact revision, and
// whether older ones are left.
func (q *KeyHistoryRequest) page(versions []*coder.Record, mark int64) (page []*coder.Record, more bool) {
	bytes := 0
	for _, rec := range versions {
		if rec.ModRevision <= mark && rec.Tombstone {
			return page, false
		}
		bytes += len(rec.Value)
		if len(page) == q.Limit || bytes > q.MaxBytes && len(page) > 0 {
			return page, true
		}
		page = append(page, rec)
		if rec.ModRevision <= mark {
			return page, false
		}
	}
	return page, false
}
