package export

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// hashBucket is the name of the bucket etcd's hash begins with.
const hashBucket = "key"

// HashKV returns etcd's hash of all revisions up to rev (0: the current one): the same
// history has the same hash on etcd. marshal returns a record in the form in which etcd
// stores it. HashKV reads the whole table, and keeps 40 bytes and the key of every version
// and of every deleted key in memory while it does. Errors: mvcc.ErrCompacted, mvcc.ErrFutureRevision.
func (e *Exporter) HashKV(ctx context.Context, as auth.Permit, rev int64,
	marshal func(*coder.Record) ([]byte, error)) (Hash, error) {
	if err := e.hashing.Acquire(ctx, 1); err != nil {
		return Hash{}, err
	}
	defer e.hashing.Release(1)
	for range maxAttempts {
		visible, err := e.node.ReadRevision(ctx, as, true)
		if err != nil {
			return Hash{}, err
		}
		before, err := e.node.Mark(ctx)
		if err != nil {
			return Hash{}, err
		}
		h := Hash{CompactRevision: before, Revision: visible, HashRevision: rev}
		switch {
		case rev == 0:
			h.HashRevision = h.Revision
		case rev > 0 && rev < h.CompactRevision:
			return Hash{}, mvcc.ErrCompacted
		case rev > h.Revision:
			return Hash{}, mvcc.ErrFutureRevision
		}
		h.Hash, err = e.hashUpTo(ctx, h.HashRevision, h.CompactRevision, marshal)
		after, merr := e.node.Mark(ctx)
		if merr != nil {
			return Hash{}, merr
		}
		// If the mark has moved, or a version row is missing, compaction removed rows while
		// they were read.
		if after == before && !errors.Is(err, errReadRaced) {
			return h, err
		}
	}
	return Hash{}, mvcc.ErrCompacted
}

// errReadRaced says that compaction removed a version while it was read.
var errReadRaced = errors.New("export: compaction removed a version while it was read")

// versionRef names a version.
type versionRef struct {
	rev       int64
	sub       int32
	tombstone bool
	key       []byte
}

func (e *Exporter) hashUpTo(ctx context.Context, rev, compacted int64,
	marshal func(*coder.Record) ([]byte, error)) (uint32, error) {
	refs, err := e.hashedVersions(ctx, rev, compacted)
	if err != nil {
		return 0, err
	}
	sum := crc32.Update(0, castagnoli, []byte(hashBucket))
	for chunk := range slices.Chunk(refs, versionsAtATime) {
		var keys [][]byte
		var revs []int64
		for _, r := range chunk {
			if !r.tombstone {
				keys, revs = append(keys, r.key), append(revs, r.rev)
			}
		}
		records, err := history.Versions(ctx, e.store, keys, revs)
		if err != nil {
			return 0, err
		}
		for _, r := range chunk {
			var rec *coder.Record
			if r.tombstone {
				rec = &coder.Record{Key: r.key, ModRevision: r.rev, Tombstone: true}
			} else {
				rec, records = records[0], records[1:]
			}
			if rec == nil {
				return 0, errReadRaced
			}
			value, err := marshal(rec)
			if err != nil {
				return 0, err
			}
			sum = crc32.Update(sum, castagnoli, r.storedKey())
			sum = crc32.Update(sum, castagnoli, value)
		}
	}
	return sum, nil
}

// storedKey is the key that etcd stores the version under.
func (r versionRef) storedKey() []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(r.rev))
	b = append(b, '_')
	b = binary.BigEndian.AppendUint64(b, uint64(r.sub))
	if r.tombstone {
		b = append(b, 't')
	}
	return b
}

// hashedVersions returns the versions that etcd's hash covers, by revision: all after the
// compact revision, and those up to it that are still current at rev. If no key exists at
// rev, etcd does not distinguish the empty set of versions to keep from no set, and hashes
// every version that compaction has left.
func (e *Exporter) hashedVersions(ctx context.Context, rev, compacted int64) ([]versionRef, error) {
	// A key that is created again after this has a version row for its tombstone.
	lo, hi := coder.IndexBounds([]byte{0}, []byte{0})
	deleted, err := e.index(ctx, lo, hi, func(x coder.Index) bool { return x.Tombstone && x.ModRevision <= rev })
	if err != nil {
		return nil, err
	}
	var refs, replaced []versionRef // replaced: current at the compact revision, not at rev
	var old, newest *versionRef     // of the current key: up to the compact revision, and up to rev
	exists := false                 // some key does, at rev
	finishKey := func() {
		if newest != nil {
			if x := deleted[string(newest.key)]; x.ModRevision > newest.rev {
				newest = &versionRef{rev: x.ModRevision, tombstone: true}
				if x.ModRevision <= compacted {
					old = newest
				}
			}
		}
		if old != nil && !old.tombstone {
			if newest == old {
				refs = append(refs, *old)
			} else {
				replaced = append(replaced, *old)
			}
		}
		exists = exists || newest != nil && !newest.tombstone
		old, newest = nil, nil
	}
	lo, hi = coder.VersionBounds([]byte{0}, []byte{0})
	lo = lo[:4] // the empty key too, should it ever exist
	for rec, err := range history.EachVersion(ctx, e.store, sqlstore.Range{Start: lo, End: hi}) {
		if err != nil {
			return nil, err
		}
		if rec.ModRevision > rev {
			continue
		}
		if newest != nil && !slices.Equal(newest.key, rec.Key) {
			finishKey()
		}
		newest = &versionRef{rev: rec.ModRevision, sub: rec.Sub, tombstone: rec.Tombstone, key: rec.Key}
		if rec.ModRevision <= compacted {
			old = newest
		} else if !rec.Tombstone {
			refs = append(refs, *newest)
		}
	}
	finishKey()
	if err := e.eachTombstone(ctx, compacted+1, rev, func(rec *coder.Record) error {
		refs = append(refs, versionRef{rev: rec.ModRevision, sub: rec.Sub, tombstone: true, key: rec.Key})
		return nil
	}); err != nil {
		return nil, err
	}
	if !exists {
		refs = append(refs, replaced...)
	}
	slices.SortFunc(refs, func(a, b versionRef) int {
		return cmp.Or(cmp.Compare(a.rev, b.rev), cmp.Compare(a.sub, b.sub))
	})
	return refs, nil
}

// index returns by key the index rows of [lo, hi) that want accepts.
func (e *Exporter) index(ctx context.Context, lo, hi []byte, want func(coder.Index) bool) (map[string]coder.Index,
	error) {
	found := make(map[string]coder.Index)
	for row, err := range e.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi}) {
		if err != nil {
			return nil, err
		}
		x, err := coder.DecodeIndex(row.Value)
		if err != nil {
			return nil, err
		}
		if !want(x) {
			continue
		}
		key, err := coder.DecodeIndexKey(row.Key)
		if err != nil {
			return nil, err
		}
		found[string(key)] = x
	}
	return found, nil
}

// Hash returns a hash of all rows of the table, by key. Unlike HashKV it depends on what
// compaction has removed so far, and on writes in progress.
func (e *Exporter) Hash(ctx context.Context, as auth.Permit) (uint32, error) {
	if err := e.hashing.Acquire(ctx, 1); err != nil {
		return 0, err
	}
	defer e.hashing.Release(1)
	if _, err := e.node.ReadRevision(ctx, as, true); err != nil {
		return 0, err
	}
	sum := uint32(0)
	for row, err := range e.store.Iter(ctx, sqlstore.Range{Start: []byte{}, End: []byte{0xff}}) {
		if err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, castagnoli, row.Key)
		sum = crc32.Update(sum, castagnoli, row.Value)
	}
	return sum, nil
}
