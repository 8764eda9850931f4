package export

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
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
// stores it. HashKV reads the whole table once, and keeps 24 bytes of every version and the keys
// that are deleted in memory while it does. Errors: mvcc.ErrCompacted, mvcc.ErrFutureRevision.
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
		if after == before {
			return h, err
		}
		// Compaction may have removed rows before they were read.
	}
	return Hash{}, mvcc.ErrCompacted
}

func (e *Exporter) hashUpTo(ctx context.Context, rev, compacted int64,
	marshal func(*coder.Record) ([]byte, error)) (uint32, error) {
	v := hashedVersions{marshal: marshal, compacted: compacted}
	if err := v.read(ctx, e, rev); err != nil {
		return 0, err
	}
	slices.SortFunc(v.parts, func(a, b hashPart) int {
		return cmp.Or(cmp.Compare(a.rev, b.rev), cmp.Compare(a.sub, b.sub))
	})
	sum := crc32.Update(0, castagnoli, []byte(hashBucket))
	for _, p := range v.parts {
		sum = p.appendTo(sum)
	}
	return sum, nil
}

// hashPart is what a version adds to the hash, which goes over the versions by revision. They are read by key.
type hashPart struct {
	rev  int64
	sub  int32
	sum  uint32 // of the version alone
	size int
}

var zeros [4096]byte

// appendTo returns the sum of what has the sum before, followed by the version. A CRC without its two inversions is
// linear: the sum of two strings is that of the first followed by zeros, xor that of the second.
func (p hashPart) appendTo(before uint32) uint32 {
	inverted := ^before
	for n := p.size; n > 0; n -= len(zeros) {
		inverted = crc32.Update(inverted, castagnoli, zeros[:min(n, len(zeros))])
	}
	return ^inverted ^ p.sum
}

// hashedVersions collects the versions that etcd's hash covers: all after the compact
// revision, and those up to it that are still current at the hash's revision. If no key exists
// there, etcd does not distinguish the empty set of versions to keep from no set, and hashes
// every version that compaction has left.
type hashedVersions struct {
	marshal   func(*coder.Record) ([]byte, error)
	compacted int64

	parts    []hashPart
	replaced []hashPart // current at the compact revision, not at the hash's, as long as no key exists
	exists   bool       // a key does
}

func (v *hashedVersions) read(ctx context.Context, e *Exporter, rev int64) error {
	// A key that is created again after this has a version row for its tombstone.
	lo, hi := coder.IndexBounds([]byte{0}, []byte{0})
	deleted, err := e.index(ctx, lo, hi, func(x coder.Index) bool { return x.Tombstone && x.ModRevision <= rev })
	if err != nil {
		return err
	}
	var old, newest *coder.Record // of the current key: up to the compact revision, and up to rev
	lo, hi = coder.VersionBounds([]byte{0}, []byte{0})
	lo = lo[:4] // the empty key too, should it ever exist
	for rec, err := range history.EachVersion(ctx, e.store, sqlstore.Range{Start: lo, End: hi}) {
		if err != nil {
			return err
		}
		if rec.ModRevision > rev {
			continue
		}
		if newest != nil && !bytes.Equal(newest.Key, rec.Key) {
			if err := v.finishKey(old, newest, deleted); err != nil {
				return err
			}
			old = nil
		}
		newest = rec
		if rec.ModRevision <= v.compacted {
			old = rec
		} else if !rec.Tombstone {
			if err := v.add(&v.parts, rec); err != nil {
				return err
			}
		}
	}
	if newest != nil {
		if err := v.finishKey(old, newest, deleted); err != nil {
			return err
		}
	}
	if !v.exists {
		v.parts = append(v.parts, v.replaced...)
	}
	return e.eachTombstone(ctx, v.compacted+1, rev, func(rec *coder.Record) error { return v.add(&v.parts, rec) })
}

// finishKey decides on old, the version of a key at the compact revision.
func (v *hashedVersions) finishKey(old, newest *coder.Record, deleted map[string]coder.Index) error {
	end := deleted[string(newest.Key)].ModRevision
	exists := !newest.Tombstone && end < newest.ModRevision
	v.exists = v.exists || exists
	switch {
	case old == nil || old.Tombstone || old.ModRevision < end && end <= v.compacted:
		return nil
	case exists && old == newest:
		return v.add(&v.parts, old)
	case v.exists:
		return nil
	}
	return v.add(&v.replaced, old)
}

func (v *hashedVersions) add(to *[]hashPart, rec *coder.Record) error {
	value, err := v.marshal(rec)
	if err != nil {
		return err
	}
	key := storedKey(rec)
	sum := crc32.Update(crc32.Update(0, castagnoli, key), castagnoli, value)
	*to = append(*to, hashPart{rev: rec.ModRevision, sub: rec.Sub, sum: sum, size: len(key) + len(value)})
	return nil
}

// storedKey is the key that etcd stores a version under.
func storedKey(r *coder.Record) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(r.ModRevision))
	b = append(b, '_')
	b = binary.BigEndian.AppendUint64(b, uint64(r.Sub))
	if r.Tombstone {
		b = append(b, 't')
	}
	return b
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
