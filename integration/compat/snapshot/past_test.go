package snapshot

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// give writes a past: versions, deletions, transactions of several keys, leases, and a
// compaction in the middle.
func give(t testing.TB, ctx context.Context, c *clientv3.Client) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var leases []clientv3.LeaseID
	for range 3 {
		l, err := c.Grant(ctx, 9000+int64(len(leases)))
		require.NoError(t, err)
		leases = append(leases, l.ID)
	}
	key := func() string { return fmt.Sprintf("/registry/\x00%c/%d", 'a'+rune(r.IntN(4)), r.IntN(8)) }
	for i := range 400 {
		var opts []clientv3.OpOption
		if r.IntN(4) == 0 {
			opts = append(opts, clientv3.WithLease(leases[r.IntN(len(leases))]))
		}
		var ops []clientv3.Op
		switch r.IntN(8) {
		case 0:
			ops = append(ops, clientv3.OpDelete(key()))
		case 1:
			ops = append(ops, clientv3.OpDelete(key(), clientv3.WithFromKey()))
		case 2:
			ops = append(ops, clientv3.OpPut("x"+key(), "", opts...), clientv3.OpPut("y"+key(), fmt.Sprint(i)),
				clientv3.OpDelete(key()))
		default:
			ops = append(ops, clientv3.OpPut(key(), fmt.Sprint(i), opts...))
		}
		resp, err := c.Txn(ctx).Then(ops...).Commit()
		require.NoError(t, err)
		if i == 200 {
			_, err := c.Compact(ctx, resp.Header.Revision-int64(r.IntN(10)), clientv3.WithCompactPhysical())
			require.NoError(t, err)
		}
	}
	_, err := c.Revoke(ctx, leases[0])
	require.NoError(t, err)
}

// protect makes users and a role, and switches authentication on.
func protect(t testing.TB, ctx context.Context, c *clientv3.Client) {
	t.Helper()
	for _, err := range []error{
		errOf(c.UserAdd(ctx, rootName, rootWord)), errOf(c.UserGrantRole(ctx, rootName, "root")),
		errOf(c.RoleAdd(ctx, "reader")), errOf(c.RoleGrantPermission(ctx, "reader", "x", "z",
			clientv3.PermissionType(clientv3.PermRead))),
		errOf(c.UserAdd(ctx, "eve", "word")), errOf(c.UserGrantRole(ctx, "eve", "reader")), errOf(c.AuthEnable(ctx)),
	} {
		require.NoError(t, err)
	}
}

func errOf[T any](_ T, err error) error { return err }

// state is all that can be asked of a server.
type state struct {
	Compacted, Revision int64
	Keys, Hashes        map[int64]string // by revision
	Events              []string
	Leases, Users       []string
}

// stateOf reads the state. The compact revision is that of HashKV.
func stateOf(t testing.TB, ctx context.Context, c *clientv3.Client) *state {
	t.Helper()
	newest, err := c.HashKV(ctx, c.Endpoints()[0], 0)
	require.NoError(t, err)
	s := &state{Compacted: newest.CompactRevision, Revision: newest.HashRevision, Keys: map[int64]string{},
		Hashes: map[int64]string{}}
	from := max(s.Compacted, 1)
	for rev := from; rev <= s.Revision; rev++ {
		keys, err := c.Get(ctx, "", clientv3.WithFromKey(), clientv3.WithRev(rev))
		require.NoError(t, err)
		for _, kv := range keys.Kvs {
			s.Keys[rev] += brief(kv) + "\n"
		}
		if rev == s.Compacted {
			continue // etcd returns the hash that it took when it compacted, from memory
		}
		h, err := c.HashKV(ctx, c.Endpoints()[0], rev)
		require.NoError(t, err)
		s.Hashes[rev] = fmt.Sprint(h.Hash, h.HashRevision, h.CompactRevision)
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	last := int64(0)
	for r := range c.Watch(watching, "", clientv3.WithFromKey(), clientv3.WithRev(from), clientv3.WithPrevKV()) {
		require.NoError(t, r.Err())
		for _, e := range r.Events {
			last = e.Kv.ModRevision
			line := fmt.Sprint(e.Type, " ", brief(e.Kv))
			if e.PrevKv != nil && last > from { // before the first, one of the servers may remember it yet
				line += " before: " + brief(e.PrevKv)
			}
			s.Events = append(s.Events, line)
		}
		if last >= s.Revision {
			break
		}
	}
	s.leases(t, ctx, c)
	s.users(t, ctx, c)
	return s
}

func (s *state) leases(t testing.TB, ctx context.Context, c *clientv3.Client) {
	t.Helper()
	leases, err := c.Leases(ctx)
	require.NoError(t, err)
	for _, l := range leases.Leases {
		ttl, err := c.TimeToLive(ctx, l.ID, clientv3.WithAttachedKeys())
		require.NoError(t, err)
		var keys []string
		for _, k := range ttl.Keys {
			keys = append(keys, string(k))
		}
		slices.Sort(keys)
		s.Leases = append(s.Leases, fmt.Sprintf("%x for %d s: %q", ttl.ID, ttl.GrantedTTL, keys))
	}
	slices.Sort(s.Leases)
}

func (s *state) users(t testing.TB, ctx context.Context, c *clientv3.Client) {
	t.Helper()
	st, err := c.AuthStatus(ctx)
	require.NoError(t, err)
	users, err := c.UserList(ctx)
	require.NoError(t, err)
	roles, err := c.RoleList(ctx)
	require.NoError(t, err)
	s.Users = append(s.Users, fmt.Sprint(st.Enabled, st.AuthRevision))
	for _, name := range users.Users {
		u, err := c.UserGet(ctx, name)
		require.NoError(t, err)
		s.Users = append(s.Users, fmt.Sprint(name, u.Roles))
	}
	for _, name := range roles.Roles {
		r, err := c.RoleGet(ctx, name)
		require.NoError(t, err)
		for _, p := range r.Perm {
			s.Users = append(s.Users, name+": "+brief(p))
		}
	}
}

func brief(m proto.Message) string { return prototext.MarshalOptions{}.Format(m) }

func requireSame(t testing.TB, want, got *state) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got)\n%.4000s", diff)
	}
}
