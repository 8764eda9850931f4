package guard

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
	"golang.org/x/crypto/bcrypt"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

func TestLookupsOfTokensThatRunAndThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTokenLookups()
		for range lookupsAtATime {
			require.NoError(t, l.acquire(t.Context()))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for range lookupsWaiting {
			waiting.Go(func() {
				if err := l.acquire(ctx); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		require.ErrorIs(t, l.acquire(t.Context()), mvcc.ErrTooManyRequests)
		cancel()
		waiting.Wait()
		require.Zero(t, l.waiting.Load(), "callers that went away leave the queue")
		l.slots.Release(1)
		require.NoError(t, l.acquire(t.Context()))
	})
}

func TestFailuresAreForgivenWithTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFailures[string](loginsFree, loginInterval)
		for i := range 2 * loginsFree {
			require.Equal(t, min(i, loginsFree), f.count("a"))
			require.Equal(t, i >= loginsFree, f.limited("a"))
			f.add("a")
		}
		require.Zero(t, f.count("b"))
		time.Sleep(loginInterval)
		require.Equal(t, loginsFree-1, f.count("a"))
		time.Sleep(loginsFree * loginInterval)
		require.Zero(t, f.count("a"))
		for i := range maxSources + 100 {
			f.add(fmt.Sprint(i))
		}
		require.Equal(t, maxSources, f.sources.Len())
		require.Equal(t, 1, f.count(fmt.Sprint(maxSources+99)))
	})
}

// from returns the context of a client's call from address.
func from(t *testing.T, address net.Addr, md ...string) context.Context {
	ctx := grpcpeer.NewContext(t.Context(), &grpcpeer.Peer{Addr: address})
	return From(metadata.NewIncomingContext(ctx, metadata.Pairs(md...)), Client)
}

type bufAddr struct{}

func (bufAddr) Network() string { return "bufconn" }
func (bufAddr) String() string  { return "bufconn" }

func TestSourceAddresses(t *testing.T) {
	tcp := func(s string) net.Addr { a, err := net.ResolveTCPAddr("tcp", s); require.NoError(t, err); return a }
	for want, ctx := range map[string]context.Context{
		"192.0.2.1":         from(t, tcp("192.0.2.1:5000"), "x-forwarded-for", "198.51.100.1"),
		"2001:db8:1:2::/64": from(t, tcp("[2001:db8:1:2:3:4:5:6]:5000")),
		"192.0.2.7":         from(t, bufAddr{}, "x-forwarded-for", "198.51.100.1, 192.0.2.7"),
		"192.0.2.8":         from(t, bufAddr{}, "x-forwarded-for", "192.0.2.8:4711"),
		"@":                 from(t, &net.UnixAddr{Name: "@", Net: "unix"}, "x-forwarded-for", "198.51.100.1"),
		"":                  t.Context(),
		"2001:db8:9:9::/64": from(t, bufAddr{}, "x-forwarded-for", "[2001:db8:9:9::1]:80"),
		"::ffff:192.0.2.9":  from(t, bufAddr{}, "x-forwarded-for", "::ffff:192.0.2.9"),
		"nowhere":           from(t, bufAddr{}, "x-forwarded-for", "192.0.2.1, nowhere"),
	} {
		require.Equal(t, want, SourceAddress(ctx))
	}
	require.Empty(t, SourceAddress(from(t, bufAddr{})))
}

// How long a check takes must not say whether a user exists, or has a password.
func TestAnUnknownUserIsComparedAtTheSameCost(t *testing.T) {
	n := newNode(t)
	g := newGuard(t, n)
	populate(t, g)
	g.mustChange(t, as(t, g, "root"), func(s etcdauth.AuthStore) error {
		_, err := s.UserAdd(&pb.AuthUserAddRequest{Name: "bare", Options: &authpb.UserAddOptions{NoPassword: true}})
		return err
	})
	var costs []int
	compare := g.comparePassword
	g.comparePassword = func(hash, password []byte) error {
		cost, err := bcrypt.Cost(hash)
		require.NoError(t, err)
		costs = append(costs, cost)
		err = compare(hash, password)
		require.True(t, err == nil || errors.Is(err, bcrypt.ErrMismatchedHashAndPassword), err)
		return err
	}
	for name, want := range map[string]error{"ann": etcdauth.ErrAuthFailed, "nobody": etcdauth.ErrAuthFailed,
		"": etcdauth.ErrAuthFailed, "bare": etcdauth.ErrNoPasswordUser} {
		_, _, err := g.Authenticate(t.Context(), name, "wrong", g.IssueToken)
		require.ErrorIs(t, err, want, name)
	}
	stored := g.cfg.BcryptCost
	require.Equal(t, []int{stored, stored, stored, stored}, costs)

	raised := newGuard(t, n)
	raised.cfg.BcryptCost++ // the stored ones stay as they are
	raised.comparePassword = g.comparePassword
	costs = nil
	for _, name := range []string{"ann", "nobody"} {
		_, _, err := raised.Authenticate(t.Context(), name, "wrong", raised.IssueToken)
		require.ErrorIs(t, err, etcdauth.ErrAuthFailed, name)
	}
	require.Equal(t, []int{stored, stored}, costs)
}

// Wrong logins of one login are answered late, right ones of the same login at once.
func TestTheAnswersToRepeatedWrongLoginsAreHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, newNode(t))
		populate(t, g)
		try := func(password string) (time.Duration, error) {
			start := time.Now()
			_, _, err := g.Authenticate(t.Context(), "ann", password, g.IssueToken)
			return time.Since(start), err
		}
		for range loginsFree - 1 {
			took, err := try("wrong")
			require.ErrorIs(t, err, etcdauth.ErrAuthFailed)
			require.Zero(t, took)
		}
		took, err := try("wrong")
		require.ErrorIs(t, err, etcdauth.ErrAuthFailed)
		require.Equal(t, holdFailure, took)
		var wg sync.WaitGroup
		for range maxHeld + 10 {
			wg.Go(func() { g.hold(t.Context()) })
		}
		synctest.Wait()
		require.EqualValues(t, maxHeld, g.held.Load(), "more are answered at once")
		took, err = try("annpw")
		require.NoError(t, err)
		require.Zero(t, took)
		wg.Wait()
		require.Zero(t, g.held.Load())
	})
}

// A client needs no credentials to have a failed login logged, and chooses the name in it.
func TestTheNameInTheLogOfAFailedLoginIsBounded(t *testing.T) {
	g := newGuard(t, newNode(t))
	populate(t, g)
	var log bytes.Buffer
	g.log = slog.New(slog.NewTextHandler(&log, nil))
	for _, name := range []string{"bob", strings.Repeat("n", 1<<20)} {
		log.Reset()
		_, _, err := g.Authenticate(t.Context(), name, "wrong", g.IssueToken)
		require.ErrorIs(t, err, etcdauth.ErrAuthFailed)
		require.Contains(t, log.String(), "user="+name[:min(len(name), maxLoggedName)]+" ")
		require.Less(t, log.Len(), 2*maxLoggedName)
	}
}

func TestAPasswordHashOfAHighCostIsNotChecked(t *testing.T) {
	n := newNode(t)
	g := newGuard(t, n)
	populate(t, g)
	const costly = "$2a$31$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234"
	require.ErrorIs(t, CheckStoredPassword([]byte(costly), MaxStoredCost(4)), ErrPasswordTooCostly)
	require.NoError(t, CheckStoredPassword([]byte("no hash"), MaxStoredCost(4)))
	encoded := base64.StdEncoding.EncodeToString([]byte(costly))
	for _, apply := range []func(etcdauth.AuthStore) error{
		func(s etcdauth.AuthStore) error {
			_, err := s.UserAdd(&pb.AuthUserAddRequest{Name: "bob", HashedPassword: encoded})
			return err
		},
		func(s etcdauth.AuthStore) error {
			_, err := s.UserChangePassword(&pb.AuthUserChangePasswordRequest{Name: "ann", HashedPassword: encoded})
			return err
		},
	} {
		_, err := g.Change(as(t, g, "root"), apply)
		require.ErrorIs(t, err, ErrPasswordTooCostly)
	}

	// A row that came into the table another way: the login ends at once, and the other rules hold.
	scratch := g.view(n.Auth.Rows()).store.writable(31)
	u := scratch.UnsafeGetUser("ann")
	u.Password = []byte(costly)
	raw := scratch.encode(u)
	_, err := n.Auth.Change(t.Context(), auth.System, func(rows *auth.Rows) (*auth.Change, error) {
		return &auth.Change{Enabled: true, Revision: rows.Revision + 1, Users: map[string][]byte{"ann": raw}}, nil
	})
	require.NoError(t, err)
	_, _, err = g.Authenticate(t.Context(), "ann", "annpw", g.IssueToken)
	require.ErrorIs(t, err, etcdauth.ErrAuthFailed)
	g.mustChange(t, as(t, g, "root"), func(s etcdauth.AuthStore) error {
		_, err := s.UserRevokeRole(&pb.AuthUserRevokeRoleRequest{Name: "ann", Role: "a"})
		return err
	})
	g.mustChange(t, as(t, g, "root"), func(s etcdauth.AuthStore) error {
		hash, err := g.HashPassword(t.Context(), "new")
		require.NoError(t, err)
		_, err = s.UserChangePassword(&pb.AuthUserChangePasswordRequest{Name: "ann", HashedPassword: hash})
		return err
	})
	_, _, err = g.Authenticate(t.Context(), "ann", "new", g.IssueToken)
	require.NoError(t, err)
}
