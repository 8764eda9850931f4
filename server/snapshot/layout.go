package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/coder"
)

// The buckets of etcd's replica, and their named keys. See server/storage/schema of
// etcd.
var (
	bucketKey            = []byte("key")
	bucketMeta           = []byte("meta")
	bucketLease          = []byte("lease")
	bucketAlarm          = []byte("alarm")
	bucketCluster        = []byte("cluster")
	bucketMembers        = []byte("members")
	bucketMembersRemoved = []byte("members_removed")
	bucketAuth           = []byte("auth")
	bucketAuthUsers      = []byte("authUsers")
	bucketAuthRoles      = []byte("authRoles")

	metaConsistentIndex  = []byte("consistent_index")
	metaTerm             = []byte("term")
	metaConfState        = []byte("confState")
	metaStorageVersion   = []byte("storageVersion")
	metaScheduledCompact = []byte("scheduledCompactRev")
	metaFinishedCompact  = []byte("finishedCompactRev")
	clusterVersion       = []byte("clusterVersion")
	authEnabled          = []byte("authEnabled")
	authRevision         = []byte("authRevision")
)

// Keys of the key bucket are revisions: main(8) '_' sub(8), followed by 't' for a
// tombstone.
const (
	revisionLen   = 8 + 1 + 8
	tombstoneMark = 't'
)

// ErrDamaged is the error of a file that is not a snapshot, or is incomplete.
var ErrDamaged = errors.New("the snapshot file is damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

func encodeRevision(rev, sub int64, tombstone bool) []byte {
	b := make([]byte, 0, revisionLen+1)
	b = binary.BigEndian.AppendUint64(b, uint64(rev))
	b = append(b, '_')
	b = binary.BigEndian.AppendUint64(b, uint64(sub))
	if tombstone {
		b = append(b, tombstoneMark)
	}
	return b
}

func decodeRevision(b []byte) (rev, sub int64, tombstone bool, err error) {
	tombstone = len(b) == revisionLen+1 && b[revisionLen] == tombstoneMark
	if len(b) != revisionLen && !tombstone || b[8] != '_' {
		return 0, 0, false, damaged("%x is not a revision", b)
	}
	rev, sub = int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[9:]))
	if rev < 0 || sub < 0 {
		return 0, 0, false, damaged("the revision %d of change %d is negative", rev, sub)
	}
	return rev, sub, tombstone, nil
}

// EncodeValue returns the value that etcd stores for a version, which its hash covers. For a
// tombstone that is only the key.
func EncodeValue(r *coder.Record) ([]byte, error) {
	kv := &mvccpb.KeyValue{Key: r.Key}
	if !r.Tombstone {
		kv.Value, kv.Lease = r.Value, r.Lease
		kv.CreateRevision, kv.ModRevision, kv.Version = r.CreateRevision, r.ModRevision, r.Version
	}
	return proto.Marshal(kv)
}

// maxSub bounds the changes of one revision: sub is stored in 32 bits.
const maxSub = 1<<31 - 1

// decodeVersion returns the version that is stored as key and value. It returns nil for
// a record without a key, which only marks that the revision exists:
// `etcdutl snapshot restore --bump-revision` leaves such a record.
func decodeVersion(key, value []byte) (rev int64, _ *coder.Record, err error) {
	rev, sub, tombstone, err := decodeRevision(key)
	if err != nil {
		return 0, nil, err
	}
	if rev < 1 || sub > maxSub {
		return 0, nil, damaged("revision %d with change %d cannot exist", rev, sub)
	}
	kv := &mvccpb.KeyValue{}
	if err := proto.Unmarshal(value, kv); err != nil {
		return 0, nil, damaged("the version at revision %d, change %d: %v", rev, sub, err)
	}
	if len(kv.Key) == 0 {
		return rev, nil, nil
	}
	r := &coder.Record{Key: kv.Key, ModRevision: rev, Sub: int32(sub), Tombstone: tombstone}
	if tombstone {
		return rev, r, nil
	}
	r.Value, r.Lease = kv.Value, kv.Lease
	r.CreateRevision, r.Version = kv.CreateRevision, kv.Version
	return rev, r, checkVersion(r)
}

// checkVersion checks a version that is not a tombstone.
func checkVersion(r *coder.Record) error {
	if r.CreateRevision < 1 || r.CreateRevision > r.ModRevision || r.Version < 1 {
		return damaged("the version of %.100q at revision %d has version number %d and create revision %d", r.Key,
			r.ModRevision, r.Version, r.CreateRevision)
	}
	return nil
}
