package snapshot

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
)

const (
	// txVersions and txBytes bound one transaction of bbolt, which keeps its pages in
	// memory.
	txVersions = 5_000
	txBytes    = 4 << 20
	// fill is how full pages become. Keys arrive in order, so pages need no free space.
	fill = 0.95
)

// write writes s into a file in dir, and returns the open file and the size of its content.
func write(ctx context.Context, dir string, runBytes int, s *export.Snapshot,
	about About) (_ *os.File, size int64, err error) {
	sorted := &sorter{dir: dir, runBytes: runBytes}
	defer func() { err = errors.Join(err, sorted.close()) }()
	compacted, err := s.Versions(ctx, sorted.add)
	if err != nil {
		return nil, 0, err
	}
	path := filepath.Join(dir, "db")
	// The file need not be durable: it does not outlive the process.
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, NoGrowSync: true, NoFreelistSync: true,
		FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, 0, fmt.Errorf("the file of the snapshot: %w", err)
	}
	file, err := os.Open(path)
	_ = os.Remove(path) // see createTemp
	defer func() {
		if err = errors.Join(err, db.Close()); err != nil && file != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	if err != nil {
		return nil, 0, err
	}
	w := &writer{ctx: ctx, db: db}
	if err := w.all(s, sorted, compacted, about); err != nil {
		return nil, 0, err
	}
	err = db.View(func(tx *bbolt.Tx) error {
		size = tx.Size()
		in := &loading{tx: tx} // no file that Load would refuse
		return errors.Join(in.readLeases(), in.readAuth())
	})
	return file, size, err
}

// writer fills the buckets.
type writer struct {
	ctx context.Context
	db  *bbolt.DB
}

func (w *writer) all(s *export.Snapshot, versions *sorter, compacted int64, about About) error {
	err := w.db.Update(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{
			bucketKey, bucketMeta, bucketLease, bucketAlarm, bucketCluster, bucketMembers, bucketMembersRemoved,
			bucketAuth, bucketAuthUsers, bucketAuthRoles,
		} {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	newest, err := w.versions(versions, compacted)
	if err != nil {
		return fmt.Errorf("writing versions: %w", err)
	}
	return w.db.Update(func(tx *bbolt.Tx) error {
		p := &putter{tx: tx}
		if max(newest, compacted, 1) < s.Revision {
			// sqlbrain recover left a gap. The only way to mark it in etcd is etcdutl's.
			p.put(bucketKey, encodeRevision(s.Revision, 0, false), nil)
		}
		p.meta(s, compacted, about)
		p.leases(s)
		p.auth(s.Auth)
		p.cluster(s, about)
		return p.err
	})
}

// versions fills the key bucket, and returns the newest revision in it.
func (w *writer) versions(from *sorter, compacted int64) (newest int64, err error) {
	var tx *bbolt.Tx
	var bucket *bbolt.Bucket
	var count, bytes int
	defer func() {
		if tx != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	commit := func() error {
		if tx == nil {
			return nil
		}
		committing := tx
		tx, count, bytes = nil, 0, 0
		return committing.Commit()
	}
	err = from.merge(func(v stored) error {
		rev, _, tombstone, err := decodeRevision(v.key)
		if err != nil {
			return err
		}
		if tombstone && rev < compacted || v.next != 0 && v.next <= compacted {
			return nil // see export.Version.Needed
		}
		if tx == nil {
			if err := w.ctx.Err(); err != nil {
				return err
			}
			if tx, err = w.db.Begin(true); err != nil {
				return err
			}
			bucket = tx.Bucket(bucketKey)
			bucket.FillPercent = fill
		}
		if err := bucket.Put(v.key, v.value); err != nil {
			return err
		}
		newest = rev
		count++
		if bytes += len(v.key) + len(v.value); count < txVersions && bytes < txBytes {
			return nil
		}
		return commit()
	})
	if err != nil {
		return 0, err
	}
	return newest, commit()
}

// putter puts rows into buckets, unless an earlier row failed.
type putter struct {
	tx  *bbolt.Tx
	err error
}

func (p *putter) put(bucket, key, value []byte) {
	if p.err == nil {
		p.err = p.tx.Bucket(bucket).Put(key, value)
	}
}

func (p *putter) json(v any) []byte {
	raw, err := json.Marshal(v)
	p.err = errors.Join(p.err, err)
	return raw
}

func (p *putter) protobuf(m proto.Message) []byte {
	raw, err := proto.Marshal(m)
	p.err = errors.Join(p.err, err)
	return raw
}

func (p *putter) meta(s *export.Snapshot, compacted int64, about About) {
	voters := make([]uint64, len(about.Members))
	for i, m := range about.Members {
		voters[i] = m.ID
	}
	slices.Sort(voters)
	p.put(bucketMeta, metaConsistentIndex, uint64Bytes(uint64(s.Sequence)))
	p.put(bucketMeta, metaTerm, uint64Bytes(uint64(s.Term)))
	p.put(bucketMeta, metaConfState, p.json(struct {
		Voters    []uint64 `json:"voters"`
		AutoLeave bool     `json:"auto_leave"`
	}{voters, false}))
	p.put(bucketMeta, metaStorageVersion, []byte(about.StorageVersion))
	if compacted > 0 {
		rev := encodeRevision(compacted, 0, false)
		p.put(bucketMeta, metaScheduledCompact, rev)
		p.put(bucketMeta, metaFinishedCompact, rev)
	}
}

func (p *putter) leases(s *export.Snapshot) {
	for _, l := range s.Leases() {
		p.put(bucketLease, uint64Bytes(uint64(l.ID)),
			p.protobuf(&leasepb.Lease{ID: l.ID, TTL: l.TTL, RemainingTTL: l.Remaining}))
	}
}

func (p *putter) auth(rows *auth.Rows) {
	p.put(bucketAuth, authRevision, uint64Bytes(uint64(max(rows.Revision, 1))))
	switch {
	case rows.Enabled:
		p.put(bucketAuth, authEnabled, []byte{1})
	case rows.Epoch > 0: // authentication was once enabled
		p.put(bucketAuth, authEnabled, []byte{0})
	}
	for _, name := range slices.Sorted(maps.Keys(rows.Users)) {
		p.put(bucketAuthUsers, []byte(name), rows.Users[name])
	}
	for _, name := range slices.Sorted(maps.Keys(rows.Roles)) {
		p.put(bucketAuthRoles, []byte(name), rows.Roles[name])
	}
}

func (p *putter) cluster(s *export.Snapshot, about About) {
	for _, a := range s.Alarms {
		p.put(bucketAlarm, p.protobuf(&pb.AlarmMember{MemberID: a.MemberID, Alarm: pb.AlarmType(a.Type)}), nil)
	}
	for _, m := range about.Members {
		p.put(bucketMembers, []byte(strconv.FormatUint(m.ID, 16)), p.json(m))
	}
	p.put(bucketCluster, clusterVersion, []byte(about.ClusterVersion))
}

func uint64Bytes(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
