package backend

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// hashBucket is the name of the bucket etcd's hash begins with.
const hashBucket = "key"

// HashKV returns etcd's hash of all revisions up to rev (0: the current one): the
// same history has the same hash on etcd. marshal returns a record the way etcd
// stores it. It reads the whole table and keeps 40 bytes and the key of every
// version in memory while it does. Errors: ErrCompacted, ErrFutureRevision.
func (b *Backend) HashKV(ctx context.Context, rev int64, marshal func(*coder.Record) ([]byte, error)) (Hash, error) {
	for range maxReadRaces {
		frontier, err := b.boundFrontier(ctx, true)
		if err != nil {
			return Hash{}, err
		}
		before, err := b.mark(ctx)
		if err != nil {
			return Hash{}, err
		}
		h := Hash{CompactRevision: before, Revision: frontier, HashRevision: rev}
		switch {
		case rev == 0:
			h.HashRevision = h.Revision
		case rev > 0 && rev < h.CompactRevision:
			return Hash{}, ErrCompacted
		case rev > h.Revision:
			return Hash{}, ErrFutureRevision
		}
		h.Hash, err = b.hashUpTo(ctx, h.HashRevision, h.CompactRevision, marshal)
		after, merr := b.mark(ctx)
		if merr != nil {
			return Hash{}, merr
		}
		// A version whose row is gone was taken for one that compaction keeps: the
		// tombstone behind it went away before it was read.
		if after == before && !errors.Is(err, errReadRaced) {
			return h, err
		}
	}
	return Hash{}, ErrCompacted
}

// versionRef names one version row.
type versionRef struct {
	rev       int64
	sub       int32
	tombstone bool
	key       []byte
}

func (b *Backend) hashUpTo(ctx context.Context, rev, compacted int64, marshal func(*coder.Record) ([]byte, error)) (uint32, error) {
	refs, err := b.hashedVersions(ctx, rev, compacted)
	if err != nil {
		return 0, err
	}
	sum := crc32.Update(0, castagnoli, []byte(hashBucket))
	for chunk := range slices.Chunk(refs, historyValues) {
		keys := make([][]byte, len(chunk))
		revs := make([]int64, len(chunk))
		for i, r := range chunk {
			keys[i], revs[i] = r.key, r.rev
		}
		records, err := history{b}.Versions(ctx, keys, revs)
		if err != nil {
			return 0, err
		}
		for i, rec := range records {
			if rec == nil {
				return 0, errReadRaced
			}
			value, err := marshal(rec)
			if err != nil {
				return 0, err
			}
			sum = crc32.Update(sum, castagnoli, chunk[i].storedKey())
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

// hashedVersions returns the versions that etcd's hash covers, in revision order:
// all behind the compact revision, and of those up to it the ones that are still
// current at rev. Where no key exists at rev, etcd takes its empty set of versions
// to keep for none at all, and hashes every version that compaction left behind.
func (b *Backend) hashedVersions(ctx context.Context, rev, compacted int64) ([]versionRef, error) {
	lo, hi := coder.VersionBounds([]byte{0}, []byte{0})
	lo = lo[:4] // the empty key too, should it ever exist
	it := b.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi})
	defer func() { _ = it.Close() }()
	var refs, replaced []versionRef // replaced: current at the compact revision, not at rev
	var old, newest *versionRef     // of the key at hand: up to the compact revision, and up to rev
	exists := false                 // some key does, at rev
	finishKey := func() {
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
	for it.Next() {
		key, at, err := coder.DecodeVersionKey(it.Key())
		if err != nil {
			return nil, err
		}
		if at > rev {
			continue
		}
		if newest != nil && !slices.Equal(newest.key, key) {
			finishKey()
		}
		rec, err := coder.DecodeVersion(key, at, it.Value())
		if err != nil {
			return nil, err
		}
		newest = &versionRef{rev: at, sub: rec.Sub, tombstone: rec.Tombstone, key: key}
		if at <= compacted {
			old = newest
		} else {
			refs = append(refs, *newest)
		}
	}
	finishKey()
	if !exists {
		refs = append(refs, replaced...)
	}
	slices.SortFunc(refs, func(a, b versionRef) int { return cmp.Or(cmp.Compare(a.rev, b.rev), cmp.Compare(a.sub, b.sub)) })
	return refs, it.Err()
}

// Hash returns a hash of the whole table as it is, in key order. Unlike HashKV it
// depends on what compaction has removed so far, and on writes under way.
func (b *Backend) Hash(ctx context.Context) (uint32, error) {
	if _, err := b.boundFrontier(ctx, true); err != nil {
		return 0, err
	}
	it := b.store.Iter(ctx, sqlstore.Range{Start: []byte{}, End: []byte{0xff}})
	defer func() { _ = it.Close() }()
	sum := uint32(0)
	for it.Next() {
		sum = crc32.Update(sum, castagnoli, it.Key())
		sum = crc32.Update(sum, castagnoli, it.Value())
	}
	return sum, it.Err()
}
