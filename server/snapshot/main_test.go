package snapshot

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

func TestMain(m *testing.M) { eventually.NoLeaks(m) }

func newStore(t testing.TB) sqlstore.Store {
	t.Helper()
	s := memstore.New()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// serve returns a replica that leads store until the test ends.
func serve(t testing.TB, store sqlstore.Store) *replica.Replica {
	t.Helper()
	cfg := replica.DefaultConfig()
	cfg.Logger, cfg.Exclusive = slog.New(slog.NewTextHandler(t.Output(),
		&slog.HandlerOptions{Level: slog.LevelWarn})), true
	b, err := replica.OpenLeader(t.Context(), store, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	return b
}

func put(key, value string, leaseID int64) mvcc.Op {
	return mvcc.Op{Put: &mvcc.PutRequest{Key: []byte(key), Value: []byte(value), Lease: leaseID}}
}

func del(key, end string) mvcc.Op {
	return mvcc.Op{Delete: &mvcc.DeleteRequest{KeyRange: mvcc.KeyRange{Key: []byte(key), End: []byte(end)}}}
}

func mustTxn(t testing.TB, b *replica.Replica, ops ...mvcc.Op) int64 {
	t.Helper()
	res, err := b.Txn(t.Context(), auth.System, &mvcc.Txn{Then: ops}, true)
	require.NoError(t, err)
	return res.Revision
}

// lessor returns the lessor of b, which leads.
func lessor(t testing.TB, b *replica.Replica) *lease.Lessor {
	t.Helper()
	l, err := b.Lessor()
	require.NoError(t, err)
	return l
}

var everything = mvcc.KeyRange{Key: []byte{0}, End: []byte{0}}

// grow gives b a history: versions, deletions, transactions, leases, users, and a
// compaction in the middle.
func grow(t testing.TB, b *replica.Replica, seed uint64) {
	t.Helper()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var leases []int64
	for i := range 3 {
		l, err := lessor(t, b).Grant(t.Context(), auth.System, int64(i)<<40-5, 1000+int64(i))
		require.NoError(t, err)
		leases = append(leases, l.ID)
	}
	key := func() string { return fmt.Sprintf("k\x00%c/%d", 'a'+rune(r.IntN(4)), r.IntN(6)) }
	compacted := int64(0)
	for i := range 300 {
		var leaseID int64
		if r.IntN(4) == 0 {
			leaseID = leases[r.IntN(len(leases))]
		}
		switch r.IntN(6) {
		case 0:
			mustTxn(t, b, del(key(), ""))
		case 1:
			from := key()
			mustTxn(t, b, del(from, from[:2]+"z"))
		case 2:
			mustTxn(t, b, put("x"+key(), "", leaseID), put("y"+key(), fmt.Sprint(i), 0), del(key(), ""))
		default:
			mustTxn(t, b, put(key(), fmt.Sprint(i), leaseID))
		}
		if i == 120 || i == 180 {
			compacted = b.Revision() - int64(r.IntN(20))
			_, err := b.Compact(t.Context(), auth.System, compacted, true)
			require.NoError(t, err)
		}
	}
	user, err := proto.Marshal(&authpb.User{Name: []byte("root"), Password: []byte("hash"), Roles: []string{"root"}})
	require.NoError(t, err)
	role, err := proto.Marshal(&authpb.Role{Name: []byte("root")})
	require.NoError(t, err)
	_, err = b.Auth.Change(t.Context(), auth.System, func(*auth.Rows) (*auth.Change, error) {
		return &auth.Change{Enabled: true, Revision: 7, Users: map[string][]byte{"root": user},
			Roles: map[string][]byte{"root": role}}, nil
	})
	require.NoError(t, err)
	_, err = b.Alarms.Raise(t.Context(), auth.System, quota.Alarm{MemberID: 5, Type: quota.AlarmCorrupt})
	require.NoError(t, err)
}

var testAbout = About{
	Members: []Member{{ID: 0xa1, Name: "one", PeerURLs: []string{"http://one:2380"},
		ClientURLs: []string{"http://one:2379"}}},
	ClusterVersion: "3.7.0", StorageVersion: "3.7.0",
}

// save writes a snapshot of b, with its trailing hash, and returns the file's path.
func save(t testing.TB, b *replica.Replica, runBytes int) string {
	t.Helper()
	m := NewMaker(t.TempDir())
	m.runBytes = runBytes
	f, err := m.Make(t.Context(), opener(t.Context(), b), testAbout)
	require.NoError(t, err)
	path := received(t, f)
	requireNoFiles(t, m.dir)
	return path
}

// opener returns what opens a snapshot of b.
func opener(ctx context.Context, b *replica.Replica) func() (*export.Snapshot, error) {
	return func() (*export.Snapshot, error) { return b.Exporter.OpenSnapshot(ctx, auth.System) }
}

// received returns the path of a file with what was sent.
func received(t testing.TB, f *File) string {
	t.Helper()
	var content []byte
	require.NoError(t, f.Send(func(block []byte, remaining int64) error {
		content = append(content, block...)
		require.Equal(t, max(f.Size-int64(len(content)), 0), remaining)
		return nil
	}))
	require.NoError(t, f.Close())
	path := filepath.Join(t.TempDir(), "snapshot.db")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

// load fills store with the file.
func load(t testing.TB, path string, store sqlstore.Store, o LoadOptions) *Loaded {
	t.Helper()
	s, err := Open(t.Context(), path, false)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	l, err := s.Load(t.Context(), store, o)
	require.NoError(t, err)
	return l
}
