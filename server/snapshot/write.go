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

	"github.com/sqlbrain/sqlbrain/server/backend"
)

const (
	// txVersions and txBytes bound what one transaction of bbolt, which keeps its pages
	// in memory, writes.
	txVersions = 5_000
	txBytes    = 4 << 20
	// fill is how full pages become. What comes in order never goes between.
	fill = 0.95
)

// write writes s into a file of dir, and returns it open, and how much of it counts.
func write(ctx context.Context, dir string, runBytes int, s *backend.Snapshot, about About) (_ *os.File, size int64, err error) {
	sorted := &sorter{dir: dir, runBytes: runBytes}
	defer func() { err = errors.Join(err, sorted.close()) }()
	compacted, err := s.Versions(ctx, sorted.add)
	if err != nil {
		return nil, 0, err
	}
	path := filepath.Join(dir, "db")
	// Nobody waits for the disk: the file is gone with the process anyway.
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, NoGrowSync: true, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
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
		return nil
	})
	return file, size, err
}

// writer fills the buckets.
type writer struct {
	ctx context.Context
	db  *bbolt.DB
}

func (w *writer) all(s *backend.Snapshot, versions *sorter, compacted int64, about About) error {
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
		if max(newest, compacted, 1) < s.Revision {
			// sqlbrain recover left a gap. etcd has no other way to say so than etcdutl's.
			if err := tx.Bucket(bucketKey).Put(encodeRevision(s.Revision, 0, false), nil); err != nil {
				return err
			}
		}
		if err := putMeta(tx.Bucket(bucketMeta), s, compacted, about); err != nil {
			return err
		}
		if err := putLeases(tx.Bucket(bucketLease), s); err != nil {
			return err
		}
		if err := putAuth(tx, s.Auth); err != nil {
			return err
		}
		return putCluster(tx, s, about)
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
			return nil // see SnapshotVersion.Needed
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

func putMeta(b *bbolt.Bucket, s *backend.Snapshot, compacted int64, about About) error {
	voters := make([]uint64, len(about.Members))
	for i, m := range about.Members {
		voters[i] = m.ID
	}
	slices.Sort(voters)
	confState, err := json.Marshal(struct {
		Voters    []uint64 `json:"voters"`
		AutoLeave bool     `json:"auto_leave"`
	}{voters, false})
	if err != nil {
		return err
	}
	values := []record{
		{metaConsistentIndex, uint64Bytes(uint64(s.Sequence))},
		{metaTerm, uint64Bytes(uint64(s.Term))},
		{metaConfState, confState},
		{metaStorageVersion, []byte(about.StorageVersion)},
	}
	if compacted > 0 {
		rev := encodeRevision(compacted, 0, false)
		values = append(values, record{metaScheduledCompact, rev}, record{metaFinishedCompact, rev})
	}
	return putAll(b, values)
}

func putLeases(b *bbolt.Bucket, s *backend.Snapshot) error {
	for _, l := range s.Leases() {
		value, err := proto.Marshal(&leasepb.Lease{ID: l.ID, TTL: l.TTL, RemainingTTL: l.Remaining})
		if err != nil {
			return err
		}
		if err := b.Put(uint64Bytes(uint64(l.ID)), value); err != nil {
			return err
		}
	}
	return nil
}

func putAuth(tx *bbolt.Tx, rows *backend.AuthRows) error {
	values := []record{{authRevision, uint64Bytes(uint64(max(rows.Revision, 1)))}}
	switch {
	case rows.Enabled:
		values = append(values, record{authEnabled, []byte{1}})
	case rows.Epoch > 0: // it was once
		values = append(values, record{authEnabled, []byte{0}})
	}
	if err := putAll(tx.Bucket(bucketAuth), values); err != nil {
		return err
	}
	for _, k := range []struct {
		bucket []byte
		rows   map[string][]byte
	}{{bucketAuthUsers, rows.Users}, {bucketAuthRoles, rows.Roles}} {
		for _, name := range slices.Sorted(maps.Keys(k.rows)) {
			if err := tx.Bucket(k.bucket).Put([]byte(name), k.rows[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

func putCluster(tx *bbolt.Tx, s *backend.Snapshot, about About) error {
	for _, a := range s.Alarms {
		key, err := proto.Marshal(&pb.AlarmMember{MemberID: a.MemberID, Alarm: pb.AlarmType(a.Type)})
		if err != nil {
			return err
		}
		if err := tx.Bucket(bucketAlarm).Put(key, nil); err != nil {
			return err
		}
	}
	for _, m := range about.Members {
		value, err := json.Marshal(m)
		if err != nil {
			return err
		}
		if err := tx.Bucket(bucketMembers).Put([]byte(strconv.FormatUint(m.ID, 16)), value); err != nil {
			return err
		}
	}
	return tx.Bucket(bucketCluster).Put(clusterVersion, []byte(about.ClusterVersion))
}

type record struct{ key, value []byte }

func putAll(b *bbolt.Bucket, records []record) error {
	for _, r := range records {
		if err := b.Put(r.key, r.value); err != nil {
			return err
		}
	}
	return nil
}

func uint64Bytes(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
