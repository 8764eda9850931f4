package guard

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

func newNode(t *testing.T) *replica.Replica {
	t.Helper()
	store := memstore.New()
	cfg := replica.DefaultConfig()
	cfg.Logger, cfg.Exclusive = slog.New(slog.DiscardHandler), true
	b, err := replica.OpenLeader(t.Context(), store, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, b.Close(context.Background()))
		require.NoError(t, store.Close())
	})
	return b
}

func newGuard(t *testing.T, n *replica.Replica) *Guard {
	t.Helper()
	return newGuardOf(t, n.Auth, n)
}

// newGuardOf is newGuard with other users than n's.
func newGuardOf(t *testing.T, users Users, n *replica.Replica) *Guard {
	t.Helper()
	g, err := New(Config{Users: users, Attachments: n.Attachments, Logger: slog.New(slog.DiscardHandler),
		Token: DefaultToken, TokenTTL: time.Minute, BcryptCost: 4})
	require.NoError(t, err)
	return g
}

// as returns the context of a call that another member has sent on for user.
func as(t *testing.T, g *Guard, user string) context.Context {
	md := metadata.Pairs(userKey, user, revisionKey, fmt.Sprint(g.Revision()))
	return From(metadata.NewIncomingContext(t.Context(), md), Peer)
}

func (g *Guard) mustChange(t *testing.T, ctx context.Context, apply func(etcdauth.AuthStore) error) {
	t.Helper()
	_, err := g.Change(ctx, apply)
	require.NoError(t, err)
}

func userAdd(t *testing.T, g *Guard, name, password string) func(etcdauth.AuthStore) error {
	hash, err := g.HashPassword(t.Context(), password)
	require.NoError(t, err)
	return func(s etcdauth.AuthStore) error {
		_, err := s.UserAdd(&pb.AuthUserAddRequest{Name: name, HashedPassword: hash})
		return err
	}
}

// populate makes root, and ann with a role that may read and write what begins with
// a/, and switches authentication on.
func populate(t *testing.T, g *Guard) {
	t.Helper()
	nobody := From(t.Context(), Client)
	g.mustChange(t, nobody, userAdd(t, g, "root", "rootpw"))
	g.mustChange(t, nobody, userAdd(t, g, "ann", "annpw"))
	g.mustChange(t, nobody, func(s etcdauth.AuthStore) error {
		_, err := s.RoleAdd(&pb.AuthRoleAddRequest{Name: "a"})
		require.NoError(t, err)
		_, err = s.RoleGrantPermission(&pb.AuthRoleGrantPermissionRequest{Name: "a", Perm: &authpb.Permission{
			Key: []byte("a/"), RangeEnd: []byte("a0"), PermType: authpb.Permission_READWRITE,
		}})
		require.NoError(t, err)
		for user, role := range map[string]string{"root": "root", "ann": "a"} {
			_, err := s.UserGrantRole(&pb.AuthUserGrantRoleRequest{User: user, Role: role})
			require.NoError(t, err)
		}
		return s.AuthEnable()
	})
}

func TestChangeTakesEffectAtOneVersion(t *testing.T) {
	n := newNode(t)
	g := newGuard(t, n)
	require.EqualValues(t, 1, g.Revision(), "of an empty etcd")
	populate(t, g)
	require.EqualValues(t, 7, g.Revision(), "each change raises it, enabling does not")
	require.EqualValues(t, 3, n.Auth.Rows().Version)
	other := newGuard(t, n) // sees the same rows
	require.EqualValues(t, 7, other.Revision())
	require.NoError(t, other.Watch(as(t, g, "ann"), []byte("a/x"), nil))

	_, err := g.Change(as(t, g, "ann"), func(etcdauth.AuthStore) error { t.Error("executed"); return nil })
	require.ErrorIs(t, err, etcdauth.ErrPermissionDenied)
	_, err = g.Change(as(t, g, "root"), func(s etcdauth.AuthStore) error {
		_, err := s.UserDelete(&pb.AuthUserDeleteRequest{Name: "ann"})
		require.NoError(t, err)
		_, err = s.RoleAdd(&pb.AuthRoleAddRequest{Name: "a"})
		return err
	})
	require.ErrorIs(t, err, etcdauth.ErrRoleAlreadyExist)
	require.NotNil(t, n.Auth.Rows().Users["ann"], "half of a change is no change")

	before := n.Auth.Rows()
	g.mustChange(t, as(t, g, "root"), func(s etcdauth.AuthStore) error {
		_, err := s.UserGrantRole(&pb.AuthUserGrantRoleRequest{User: "ann", Role: "a"})
		require.NoError(t, err)
		return s.AuthEnable()
	})
	require.Same(t, before, n.Auth.Rows(), "nothing has changed")

	// etcd's rules sort and append in place: nobody who reads may see that.
	v := g.view(before)
	role := v.store.roles["a"].KeyPermission[0]
	g.mustChange(t, as(t, g, "root"), func(s etcdauth.AuthStore) error {
		_, err := s.RoleGrantPermission(&pb.AuthRoleGrantPermissionRequest{Name: "a", Perm: &authpb.Permission{
			Key: []byte("a/"), RangeEnd: []byte("a0"), PermType: authpb.Permission_READ,
		}})
		return err
	})
	require.Equal(t, authpb.Permission_READWRITE, role.PermType)
	require.Equal(t, authpb.Permission_READ, g.view(n.Auth.Rows()).store.roles["a"].KeyPermission[0].PermType)
}

func TestUnreadableRowsRefuseEveryCaller(t *testing.T) {
	n := newNode(t)
	g := newGuard(t, n)
	populate(t, g)
	_, err := n.Auth.Change(t.Context(), auth.System, func(rows *auth.Rows) (*auth.Change, error) {
		return &auth.Change{Enabled: true, Revision: rows.Revision + 1, Roles: map[string][]byte{"broken": {0xff}}}, nil
	})
	require.NoError(t, err)
	root := as(t, g, "root")
	require.ErrorContains(t, second(g.Admin(root)), "broken")
	require.ErrorContains(t, second(g.AnyUser(root)), "broken")
	require.ErrorContains(t, g.Watch(root, []byte("a/"), nil), "broken")
	permit, _ := g.Range([]byte("a/"), nil)
	_, err = n.Reader.Range(root, permit, &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte("a/")}}, true)
	require.ErrorContains(t, err, "broken")
	_, err = g.Change(root, func(etcdauth.AuthStore) error { return nil })
	require.ErrorContains(t, err, "broken")
}

func TestReadIsRefusedIfUsersChangeDuringIt(t *testing.T) {
	n := newNode(t)
	g := newGuard(t, n)
	populate(t, g)
	permit, read := g.Range([]byte("a/x"), nil)
	_, err := n.Reader.Range(as(t, g, "ann"), permit,
		&mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte("a/x")}}, true)
	require.NoError(t, err)
	require.NoError(t, read.Done(nil))
	g.mustChange(t, as(t, g, "root"), userAdd(t, g, "bob", "bobpw"))
	require.ErrorIs(t, read.Done(nil), etcdauth.ErrAuthOldRevision)
}

// A member that finds out who calls, and a change before the call is executed.
func TestAWriteOfAnOldRevisionIsRefused(t *testing.T) {
	n := newNode(t)
	g := newGuard(t, n)
	populate(t, g)
	ann := as(t, g, "ann")
	writes := func(ctx context.Context) (*Caller, func() error) {
		permit, caller, err := g.Put(ctx, &pb.PutRequest{Key: []byte("a/x")})
		require.NoError(t, err)
		return &caller, func() error {
			_, err = n.Txn(ctx, permit, &mvcc.Txn{Then: []mvcc.Op{{Put: &mvcc.PutRequest{Key: []byte("a/x")}}}}, true)
			return err
		}
	}
	caller, put := writes(ann)
	require.Equal(t, "ann", caller.Name)
	require.NoError(t, put())
	root := as(t, g, "root")
	empty, _, err := g.WriteTxn(root, &pb.TxnRequest{})
	require.NoError(t, err)
	g.mustChange(t, as(t, g, "root"), userAdd(t, g, "bob", "bobpw"))
	require.ErrorIs(t, put(), etcdauth.ErrAuthOldRevision)
	_, err = n.Txn(root, empty, &mvcc.Txn{Then: []mvcc.Op{{Put: &mvcc.PutRequest{Key: []byte("a/x")}}}}, true)
	require.ErrorIs(t, err, etcdauth.ErrAuthOldRevision, "whatever its rules ask for")
	_, _, err = g.Put(ann, &pb.PutRequest{Key: []byte("a/x")})
	require.ErrorIs(t, err, etcdauth.ErrAuthOldRevision)
	_, put = writes(as(t, g, "ann"))
	require.NoError(t, put())
}

// second returns the error of an authorization.
func second(_ auth.Permit, err error) error { return err }

func TestUnknownCallerIsUnauthenticated(t *testing.T) {
	g := newGuard(t, newNode(t))
	populate(t, g)
	md := metadata.Pairs(userKey, "root", revisionKey, fmt.Sprint(g.Revision()), commonNameKey, "root")
	forged := metadata.NewIncomingContext(t.Context(), md)
	require.ErrorIs(t, second(g.AnyUser(forged)), etcdauth.ErrUserEmpty)
	require.ErrorIs(t, second(g.AnyUser(From(forged, Client))), etcdauth.ErrUserEmpty)
	require.NoError(t, second(g.AnyUser(From(forged, Inside))))
	require.NoError(t, second(g.Admin(From(forged, Peer))))
}

// login returns a token of ann's.
func (g *Guard) login(t *testing.T) string {
	t.Helper()
	token, _, err := g.Authenticate(t.Context(), "ann", "annpw", g.IssueToken)
	require.NoError(t, err)
	return token
}

// requireCaller demands that a call with a token is of a user, or of none.
func (g *Guard) requireCaller(t *testing.T, token, user string) {
	t.Helper()
	ai, _, err := g.caller(tokenContext(t.Context(), token), g.info)
	if user == "" {
		require.ErrorIs(t, err, etcdauth.ErrInvalidAuthToken)
		return
	}
	require.NoError(t, err)
	require.Equal(t, user, ai.Username)
	require.Equal(t, g.Revision(), ai.Revision)
}

// sharedClock makes the tokens of guards expire by one clock, which stands.
func sharedClock(guards ...*Guard) *time.Time {
	clock := time.Now()
	for _, g := range guards {
		g.tokens.now = func() time.Time { return clock }
	}
	return &clock
}

func TestSimpleTokenIsValidUntilItExpires(t *testing.T) {
	n := newNode(t)
	g, other := newGuard(t, n), newGuard(t, n)
	populate(t, g)
	clock := sharedClock(g, other)
	token := g.login(t)
	g.requireCaller(t, token, "ann")
	*clock = clock.Add(50 * time.Second)
	g.requireCaller(t, token, "ann")
	other.requireCaller(t, token, "ann") // every node knows it
	*clock = clock.Add(50 * time.Second)
	g.requireCaller(t, token, "ann") // since it is used
	*clock = clock.Add(20 * time.Second)
	g.requireCaller(t, token, "ann")
	other.requireCaller(t, token, "") // where it is not it ends
	other.requireCaller(t, token, "") // for good, whatever the table says
	_, found, err := n.Auth.LookupToken(t.Context(), coder.HashToken(token))
	require.NoError(t, err)
	require.True(t, found)

	*clock = clock.Add(time.Hour)
	last := g.login(t)
	g.requireCaller(t, last, "ann")
	require.Len(t, g.tokens.seen, 1, "old ones are forgotten")
	for _, wrong := range []string{"", ".", last + "1", "x" + last, last[:len(last)-1] + ".", "a.b", "a.-1"} {
		g.requireCaller(t, wrong, "")
	}
}

func TestNoTokenForAPasswordThatChangedDuringTheLogin(t *testing.T) {
	g := newGuard(t, newNode(t))
	populate(t, g)
	calls := 0
	hash, err := g.HashPassword(t.Context(), "new")
	require.NoError(t, err)
	_, _, err = g.Authenticate(t.Context(), "ann", "annpw", func(ctx context.Context, name, prefix string) (string, int64,
		error) {
		calls++
		g.mustChange(t, as(t, g, "root"), func(s etcdauth.AuthStore) error {
			_, err := s.UserChangePassword(&pb.AuthUserChangePasswordRequest{Name: "ann", HashedPassword: hash})
			return err
		})
		return g.IssueToken(ctx, name, prefix)
	})
	require.ErrorIs(t, err, etcdauth.ErrAuthFailed, "no token for the old password")
	require.Equal(t, 1, calls)
}

func TestRefusalIsCheckedAgainAtNewerUsers(t *testing.T) {
	n := newNode(t)
	stale := &staleUsers{Store: n.Auth, rows: n.Auth.Rows()}
	g := newGuardOf(t, stale, n)
	lead := newGuard(t, n)
	populate(t, lead)
	stale.rows = n.Auth.Rows() // authentication is on
	require.ErrorIs(t, g.Watch(as(t, lead, "ann"), []byte("b"), nil), etcdauth.ErrPermissionDenied)
	lead.mustChange(t, as(t, lead, "root"), func(s etcdauth.AuthStore) error {
		_, err := s.RoleGrantPermission(&pb.AuthRoleGrantPermissionRequest{Name: "a",
			Perm: &authpb.Permission{Key: []byte("b")}})
		return err
	})
	require.NoError(t, g.Watch(as(t, lead, "ann"), []byte("b"), nil))
}

// staleUsers know nothing newer than rows, unless they are refreshed.
type staleUsers struct {
	*auth.Store
	rows *auth.Rows
	away error // the table cannot be read
}

func (u *staleUsers) Rows() *auth.Rows { return u.rows }

func (u *staleUsers) Refresh(ctx context.Context) (*auth.Rows, error) {
	if u.away != nil {
		return nil, u.away
	}
	return u.Store.Refresh(ctx)
}

// A permission may have been granted that the node does not know.
func TestARefusalThatCannotBeConfirmedIsNotAnswered(t *testing.T) {
	n := newNode(t)
	lead := newGuard(t, n)
	populate(t, lead)
	stale := &staleUsers{Store: n.Auth, rows: n.Auth.Rows(), away: mvcc.ErrTimeout}
	g := newGuardOf(t, stale, n)
	require.NoError(t, g.Watch(as(t, lead, "ann"), []byte("a/x"), nil))
	require.ErrorIs(t, g.Watch(as(t, lead, "ann"), []byte("b"), nil), mvcc.ErrTimeout)
	stale.away = nil
	require.ErrorIs(t, g.Watch(as(t, lead, "ann"), []byte("b"), nil), etcdauth.ErrPermissionDenied)
}

// A change that waits while another one is made is of an old revision, and its caller of the new
// one all the same.
func TestConcurrentChangesOfOneCallerSucceed(t *testing.T) {
	g := newGuard(t, newNode(t))
	populate(t, g)
	token, _, err := g.Authenticate(t.Context(), "root", "rootpw", g.IssueToken)
	require.NoError(t, err)
	root := tokenContext(t.Context(), token)
	errs := make(chan error)
	const changes = 32
	for i := range changes {
		go func() {
			_, err := g.Change(root, func(s etcdauth.AuthStore) error {
				_, err := s.RoleAdd(&pb.AuthRoleAddRequest{Name: fmt.Sprint("role", i)})
				return err
			})
			errs <- err
		}()
	}
	for range changes {
		require.NoError(t, <-errs)
	}
}
